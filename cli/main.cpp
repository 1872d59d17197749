// onehot: the operators of the library on .npy files.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/signals.h"
#include "onehot/onehot.h"

namespace {

using onehot::cli::Exit;

constexpr char kFooter[] =
    "Examples:\n"
    "  onehot embedding-backward --grad g.npy --indices i.npy --num-weights 50257 --out dW.npy\n"
    "  onehot embedding --weight W.npy --indices i.npy --out X.npy\n"
    "  onehot nll-loss --input logp.npy --target labels.npy --out loss.npy\n"
    "  onehot cross-entropy-backward --input logits.npy --target labels.npy --out dz.npy\n"
    "  onehot linear-cross-entropy --input x.npy --weight W.npy --target labels.npy --loss loss.npy\n"
    "  onehot info\n"
    "\n"
    "Files are NumPy's .npy, of any version, byte order and memory order. Results appear under their name when they\n"
    "are complete, or not at all.\n"
    "\n"
    "Exit codes: 0 done; 1 the data is refused (shape, dtype, an index or target out of range); 2 usage; 3 a file\n"
    "cannot be read or written, or is not a known .npy file; 128 + signal when interrupted (130 for Ctrl-C).";

// One line, whatever a file name or a library put in.
int Complain(Exit code, std::string sentence) {
  std::replace_if(
      sentence.begin(), sentence.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  fmt::print(stderr, "onehot: {}\n", sentence);
  return static_cast<int>(code);
}

int Run(int argc, char** argv) {
  CLI::App app{"Gradients at the class-index end of a model, exact and reproducible, on .npy files", "onehot"};
  app.set_version_flag("--version", fmt::format("onehot {}", onehot::Version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  const std::vector<onehot::cli::Command> commands{onehot::cli::AddEmbeddingBackward(app),
                                                   onehot::cli::AddEmbedding(app),
                                                   onehot::cli::AddNllLoss(app),
                                                   onehot::cli::AddNllLossBackward(app),
                                                   onehot::cli::AddCrossEntropy(app),
                                                   onehot::cli::AddCrossEntropyBackward(app),
                                                   onehot::cli::AddLinearCrossEntropy(app),
                                                   onehot::cli::AddLinearCrossEntropyBackward(app),
                                                   onehot::cli::AddInfo(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    // What is missing is often only a consequence of a word that was not understood.
    if (const auto unknown = app.remaining(true); !unknown.empty())
      return Complain(Exit::kUsage,
                      fmt::format("'{}' is not a known {} (see onehot{}{} --help)", unknown.front(),
                                  chosen.empty() ? "command or option" : "option", chosen.empty() ? "" : " ",
                                  chosen.empty() ? "" : chosen.front()->get_name()));
    return Complain(Exit::kUsage, fmt::format("{} (see onehot{}{} --help)", error.what(), chosen.empty() ? "" : " ",
                                              chosen.empty() ? "" : chosen.front()->get_name()));
  }
  for (const auto& command : commands)
    if (command.app->parsed()) command.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  onehot::cli::InstallSignalHandlers();
  try {
    const int code = Run(argc, argv);
    // A full disk behind stdout shows only now.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return Complain(Exit::kFile, "standard output: " + std::generic_category().message(errno));
    return code;
  } catch (const onehot::cli::Failure& failure) {
    return Complain(failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    return Complain(Exit::kData, "not enough memory");
  } catch (const std::exception& error) {
    return Complain(Exit::kFile, error.what());
  }
}
