// Arrays in .npy files as tensors of the library.
#ifndef ONEHOT_CLI_ARRAY_H_
#define ONEHOT_CLI_ARRAY_H_

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/files.h"
#include "cli/npy.h"
#include "onehot/tensor.h"

namespace onehot::cli {

// What an array is for decides which of its dtypes can be had.
enum class Use {
  kNumbers,  // the dtypes of the library; two-byte void only as bf16, where asked for
  kBits,     // elements are moved, never computed with: those, unsigned integers and two-byte void as they are
  kIndices,  // those of the library, and unsigned integers as the signed ones that hold their values
  kLayout,   // as kNumbers, but only shape, dtype and order are of interest: the data are not read
};

struct InputOptions {
  Use use = Use::kNumbers;
  bool void_is_bf16 = false;  // --dtype bf16
};

// A file as a tensor. It is mapped and used in place where it can be; a copy is made of big-endian data, of data at an
// address that is no multiple of its element size, and of unsigned indices of two and four bytes.
class InputArray {
 public:
  // `argument` is what errors call the array: "grad". Throws a Failure.
  InputArray(std::string_view argument, const std::string& path, const InputOptions& options);

  const std::string& argument() const { return argument_; }
  const ConstTensorView& view() const { return view_; }
  const NpyHeader& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  bool is_void() const { return header_.element.kind == 'V'; }
  bool converted() const { return converted_.data() != nullptr; }
  // "grad  g.npy: f32 [16384, 768], mapped"
  std::string Describe() const;

  // For indices: throws the Failure that the library would report for a value of u64 beyond i64, which names the
  // smallest position whose value is neither in [0, rows) nor `ignored`.
  void ThrowIfTooLarge(std::int64_t rows, std::optional<std::int64_t> ignored = std::nullopt) const;

  // Brings the file into memory in one sequential pass, with a progress bar: operators read rows in the order of the
  // indices, which a disk serves a hundred times slower. Does nothing for a file that memory would not hold.
  void ReadAhead() const;

 private:
  std::string argument_;
  InputFile file_;
  NpyHeader header_;
  bool layout_only_ = false;
  Mapping converted_;
  ConstTensorView view_;
};

// The input files of a command, in the order in which they were read.
class InputArrays {
 public:
  explicit InputArrays(bool void_is_bf16) : void_is_bf16_(void_is_bf16) {}

  const InputArray& Read(std::string_view argument, const std::string& path, Use use = Use::kNumbers);
  // None without a path: the option was not given.
  const InputArray* ReadIfGiven(std::string_view argument, const std::string& path, Use use = Use::kNumbers);
  std::optional<ConstTensorView> ViewIfGiven(std::string_view argument, const std::string& path);

  // Throws a Failure if --dtype bf16 was given for nothing.
  void ThrowIfNoneIsVoid() const;

  // For --explain: argument and description.
  std::vector<std::pair<std::string, std::string>> Describe() const;

 private:
  const bool void_is_bf16_;
  std::deque<InputArray> arrays_;  // which never moves them
};

// A file that is to be written, as a tensor to write it through.
class OutputArray {
 public:
  OutputArray(const std::string& path, const NpyElement& element, bool fortran_order,
              const std::vector<std::int64_t>& shape);

  void* data() const { return file_.bytes().data() + offset_; }
  OutputFile& file() { return file_; }

 private:
  std::size_t offset_;
  OutputFile file_;
};

// The output files of a command. All get their names once all are complete.
class OutputArrays {
 public:
  // Makes the file of a view that is dense in C order, or in Fortran order, and sets its address. `argument` is what
  // --explain calls it.
  void Create(std::string_view argument, const std::string& path, TensorView& view, bool fortran_order = false);
  void Publish();

  std::vector<std::pair<std::string, std::string>> Describe() const { return lines_; }

 private:
  std::deque<OutputArray> arrays_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

// The outputs of a command that are files of options, each of which may be left out.
class OptionalOutputs {
 public:
  // Where the option has a path, sets `view` to `layout`, whose address Create sets. `view` has to stay where it is.
  // Throws a Failure if another option has the same file.
  void Add(std::string_view option, const std::string& path, std::optional<TensorView>& view, const TensorView& layout,
           bool fortran_order = false);
  // Throws a Failure if no option has a path; it names all of them.
  void ThrowIfNone() const;
  void Create(OutputArrays& arrays) const;

 private:
  struct Given {
    std::string option, path;
    TensorView& view;
    bool fortran_order;
  };
  std::vector<std::string> options_;
  std::vector<Given> given_;
};

// Options with the paths of output files. Throws a Failure if two name the same file; an empty path is no file.
void ThrowIfSameFile(std::initializer_list<std::pair<std::string_view, const std::string&>> outputs);

// The layout of an array as it lies in its file. Throws a Failure if it has more axes than the library knows.
TensorLayout LayoutOf(std::string_view argument, DType dtype, bool fortran_order,
                      const std::vector<std::int64_t>& shape);

// Copies with a progress bar, and can be interrupted.
void CopyBytes(void* to, const void* from, std::int64_t bytes, const std::string& label);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_ARRAY_H_
