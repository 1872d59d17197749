#include "cli/npy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "cli/failure.h"

namespace onehot::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A file of version 1.0 around any dict, with `data` bytes behind it.
std::string File(const std::string& dict, std::size_t data = 0) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dict.size() & 0xff);
  file += static_cast<char>(dict.size() >> 8);
  return file + dict + std::string(data, '\0');
}

NpyHeader Parse(const std::string& file) {
  return ParseNpy(AsBytes(file), "x.npy");
}

// The sentence it is refused with; empty if it is accepted.
std::string Refusal(const std::string& file) {
  try {
    (void)Parse(file);
    return "";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), Exit::kFile);
    return failure.what();
  }
}

std::string RefusalOfDict(const std::string& dict, std::size_t data = 0) {
  return Refusal(File(dict, data));
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const NpyHeader header = Parse(File("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", 24));
  EXPECT_EQ(header.element.kind, 'f');
  EXPECT_EQ(header.element.size, 4);
  EXPECT_FALSE(header.element.swapped);
  EXPECT_FALSE(header.fortran_order);
  EXPECT_EQ(header.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.data_bytes(), 24);
}

TEST(Npy, AcceptsEverySpellingOfTheDict) {
  for (const char* dict : {
           "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3)}",
           "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}",
           "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
           "  { 'descr' : '<f4' , 'fortran_order' : False ,\n\t'shape' : ( 2 , 3 , ) , } \n \n",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L)}",
           "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 3)}",
           "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3)}",
       })
    EXPECT_EQ(RefusalOfDict(dict, 24), "") << dict;
}

TEST(Npy, ReadsShapesOfEveryRank) {
  const auto shape = [](const std::string& text, std::size_t data) {
    return Parse(File("{'descr': '|u1', 'fortran_order': True, 'shape': " + text + "}", data)).shape;
  };
  EXPECT_EQ(shape("()", 1), (std::vector<std::int64_t>{}));
  EXPECT_EQ(shape("(3,)", 3), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(shape("(0, 5)", 0), (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(shape("(1, 1, 1, 1, 1, 1, 1, 1, 2)", 2).size(), 9u);
}

TEST(Npy, ReadsEveryVersion) {
  const std::string dict = "{'descr': '>i8', 'fortran_order': True, 'shape': (1,)}\n";
  for (const char major : {'\x02', '\x03'}) {
    std::string file("\x93NUMPY", 6);
    file += {major, '\0', static_cast<char>(dict.size()), '\0', '\0', '\0'};
    const NpyHeader header = Parse(file + dict + std::string(8, '\0'));
    EXPECT_TRUE(header.element.swapped);
    EXPECT_TRUE(header.fortran_order);
    EXPECT_EQ(header.data_offset, static_cast<std::int64_t>(12 + dict.size()));
  }
}

TEST(Npy, RefusesWhatIsNoNpyFile) {
  EXPECT_EQ(Refusal(""), "x.npy: is empty, not a .npy file");
  EXPECT_THAT(Refusal("hello, world"), HasSubstr("is not a .npy file"));
  EXPECT_THAT(Refusal("h"), HasSubstr("is not a .npy file"));
  EXPECT_THAT(Refusal("PK\x03\x04 and more"), HasSubstr(".npz archive"));
  EXPECT_THAT(Refusal("\x93NUM"), HasSubstr("truncated inside the header"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x01\x00\x10", 9)), HasSubstr("truncated inside the header"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x02\x00\x10\x00", 10)), HasSubstr("truncated inside the header"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x04\x00\x10\x00{}", 12)), HasSubstr("version 4.0"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x01\x01\x10\x00{}", 12)), HasSubstr("version 1.1"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)),
              HasSubstr("its header has 65535 bytes, the file only 2"));
  EXPECT_THAT(Refusal(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14)), HasSubstr("4294967295 bytes"));
}

TEST(Npy, RefusesDataOfAnotherSizeThanPromised) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}";
  EXPECT_EQ(RefusalOfDict(dict, 23),
            "x.npy: is truncated: the header promises 24 bytes of data (f32 [2, 3]), the file has 23");
  EXPECT_EQ(RefusalOfDict(dict, 25),
            "x.npy: is too long: the header promises 24 bytes of data (f32 [2, 3]), the file has 25");
}

TEST(Npy, RefusesDictsThatAreNoHeader) {
  const struct {
    const char* dict;
    const char* reason;
  } cases[] = {
      {"", "expected '{'"},
      {"{", "expected '''"},
      {"{}", "'descr' is missing"},
      {"[]", "expected '{'"},
      {"{'descr': '<f4', 'fortran_order': False}", "'shape' is missing"},
      {"{'descr': '<f4', 'shape': (1,)}", "'fortran_order' is missing"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", "'descr' is there twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", "unknown key 'more'"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "expected ',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "something follows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()", "expected ',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "expected True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "shape must be a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", "expected '('"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "expected an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "expected an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", "expected ',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", "starts with 0"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693952,)}", "does not fit 63 bits"},
      {"{'descr': '<f4", "a string does not end"},
      {"{'de\\x73cr': '<f4'}", "escape"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(RefusalOfDict(c.dict, 4), AllOf(StartsWith("x.npy: bad header: "), HasSubstr(c.reason))) << c.dict;
}

TEST(Npy, RefusesMoreAxesThanNumPyHas) {
  std::string shape = "(";
  for (int i = 0; i < 65; ++i) shape += "1, ";
  EXPECT_THAT(RefusalOfDict("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ")}", 4),
              HasSubstr("more than 64 axes"));
}

TEST(Npy, RefusesOtherElements) {
  const auto refusal = [](const std::string& descr) {
    return RefusalOfDict("{'descr': " + descr + ", 'fortran_order': False, 'shape': ()}", 4);
  };
  EXPECT_EQ(refusal("'|O'"), "x.npy: object arrays are not supported");
  EXPECT_EQ(refusal("'O8'"), "x.npy: object arrays are not supported");
  EXPECT_EQ(refusal("[('a', '<f4')]"), "x.npy: structured dtypes are not supported");
  for (const char* descr : {"<U1", "|S4", "<M8[ns]", "<f16", "<f3", "<i16", "|V4", "<c32", "", "<", "f",
                            "<f99999999999", "<f4x", "f-4", "<f04 ", "float32"})
    EXPECT_EQ(refusal(fmt::format("'{}'", descr)),
              fmt::format("x.npy: elements of dtype '{}' are not supported", descr));
}

TEST(Npy, ShowsNothingOfAFileThatIsNotPrintable) {
  const std::string refusal =
      RefusalOfDict("{'descr': '\x1b[31m" + std::string(1000, 'x') + "', 'fortran_order': False, 'shape': ()}", 4);
  EXPECT_THAT(refusal, HasSubstr("'?[31mxxx"));
  EXPECT_LT(refusal.size(), 120u);
}

TEST(Npy, PreambleReadsBackAndAlignsTheData) {
  for (const char kind_size : {'f', 'V'})
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{}, {0}, {7}, {3, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 0}}) {
      const std::string preamble = NpyPreamble({kind_size, 2}, shape.size() == 2, shape);
      EXPECT_EQ(preamble.size() % 64, 0u);
      EXPECT_EQ(preamble.back(), '\n');
      std::size_t data = 2;
      for (const std::int64_t extent : shape) data *= static_cast<std::size_t>(extent);
      const NpyHeader header = Parse(preamble + std::string(data, 'x'));
      EXPECT_EQ(header.element.kind, kind_size);
      EXPECT_EQ(header.element.size, 2);
      EXPECT_FALSE(header.element.swapped);
      EXPECT_EQ(header.fortran_order, shape.size() == 2);
      EXPECT_EQ(header.shape, shape);
      EXPECT_EQ(header.data_offset, static_cast<std::int64_t>(preamble.size()));
    }
}

// Byte for byte what numpy.save and ml_dtypes write on a little-endian machine.
TEST(Npy, PreambleIsNumPys) {
  if (std::endian::native != std::endian::little) GTEST_SKIP() << "headers name the byte order";
  EXPECT_EQ(NpyPreamble({'V', 2}, false, std::vector<std::int64_t>{2, 3}),
            std::string("\x93NUMPY\x01\x00v\x00", 10) + "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }" +
                std::string(58, ' ') + "\n");
  EXPECT_THAT(NpyPreamble({'b', 1}, false, {}), HasSubstr("{'descr': '|b1', 'fortran_order': False, 'shape': (), }"));
  EXPECT_THAT(NpyPreamble({'i', 8}, true, std::vector<std::int64_t>{3}),
              HasSubstr("'fortran_order': True, 'shape': (3,), }"));
}

TEST(Npy, ElementsAndDTypesNameEachOther) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                            DType::kU8, DType::kBool, DType::kC64, DType::kC128})
    EXPECT_EQ(DTypeOf(ElementOf(dtype)), dtype) << Name(dtype);
  EXPECT_EQ(DTypeOf(ElementOf(DType::kBF16)), std::nullopt);
  EXPECT_EQ(DTypeOf({'u', 4}), std::nullopt);
}

// Damaged headers are refused or read; with the sanitizers this is the test that nothing is read out of bounds. What is
// accepted is consistent.
TEST(Npy, SurvivesRandomDamage) {
  std::mt19937 random(20);
  const auto below = [&random](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  const std::string pieces[] = {"'", "\"",           "(",    ")",     ",",  "{", "}", ":", "L", "0",
                                "9", "999999999999", "True", "descr", "\\", "\n"};
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file =
        NpyPreamble({"fiuV"[below(4)], 2}, below(2) == 1, std::vector<std::int64_t>{2, 3}) + std::string(12, 'x');
    for (std::size_t damage = below(4) + 1; damage > 0 && !file.empty(); --damage) switch (below(5)) {
        case 0:
          file[below(file.size())] = static_cast<char>(below(256));
          break;
        case 1:
          file.resize(below(file.size() + 1));
          break;
        case 2:
          file.insert(below(file.size()), pieces[below(std::size(pieces))]);
          break;
        case 3:
          file.erase(below(file.size()), below(20));
          break;
        case 4:
          file.replace(below(file.size()), 1, pieces[below(std::size(pieces))]);
          break;
      }
    // Of its exact size, so that a byte too far is one outside of the allocation.
    const std::vector<char> exact(file.begin(), file.end());
    try {
      const NpyHeader header = ParseNpy(std::as_bytes(std::span(exact)), "x.npy");
      EXPECT_EQ(header.data_offset + header.data_bytes(), static_cast<std::int64_t>(exact.size()));
      ++accepted;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), StartsWith("x.npy: "));
      EXPECT_EQ(std::string_view(failure.what()).find('\n'), std::string_view::npos);
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace onehot::cli
