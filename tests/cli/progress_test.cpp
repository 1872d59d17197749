#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace onehot::cli {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Contents(std::FILE* file) {
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(Progress, DrawsABarAndWipesIt) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("work", file, seconds(0));
    progress.Update(1, 2);
  }
  const std::string text = Contents(file);
  EXPECT_THAT(text, HasSubstr("\rwork [###############               ]  50 %"));
  EXPECT_THAT(text, EndsWith("\r\x1b[K"));
  std::fclose(file);
}

TEST(Progress, StaysSilentBeforeTheDelayAndBetweenDraws) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("work", file, hours(1));
    progress.Update(1, 2);
  }
  EXPECT_EQ(Contents(file), "");
  {
    Progress progress("work", file, seconds(0));
    progress.Update(1, 4);
    progress.Update(2, 4);
  }
  const std::string text = Contents(file);
  EXPECT_THAT(text, HasSubstr(" 25 %"));
  EXPECT_EQ(text.find(" 50 %"), std::string::npos);
  std::fclose(file);
}

TEST(Progress, TakesAnyNumbers) {
  std::FILE* file = std::tmpfile();
  { Progress("work", file, seconds(0)).Update(0, 0); }
  { Progress("work", file, seconds(0)).Update(5, 2); }
  { Progress("work", file, seconds(0)).Update(-5, 2); }
  EXPECT_THAT(Contents(file), HasSubstr("100 %"));
  { Progress("work", nullptr, seconds(0)).Update(1, 2); }
  std::fclose(file);
}

}  // namespace
}  // namespace onehot::cli
