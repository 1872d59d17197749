// Files as memory: inputs mapped, outputs written under a temporary name and renamed when they are complete.
#ifndef ONEHOT_CLI_FILES_H_
#define ONEHOT_CLI_FILES_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace onehot::cli {

// Pages from mmap, given back when it goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  // Zeroed memory of no file. Throws a Failure that names `purpose` if there is not enough.
  static Mapping Anonymous(std::size_t size, const std::string& purpose);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// An open file, closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }

 private:
  int number_;
};

// The bytes of a file, read-only. What cannot be mapped (a pipe) is read to its end instead.
class InputFile {
 public:
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {memory_.data(), size_}; }

  // Reads a mapped file into memory from its start to its end, if half of the machine's memory holds it.
  void ReadAhead() const;

 private:
  std::string path_;
  Mapping memory_;
  std::size_t size_ = 0;  // that of memory_, or less
};

// A file of known size under a temporary name beside its place, mapped for writing. It takes its place with Publish;
// without it nothing is left. Its blocks are reserved here, so that a full disk is an error now and not a signal later.
class OutputFile {
 public:
  OutputFile(const std::string& path, std::size_t size);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  std::span<std::byte> bytes() const { return {memory_.data(), memory_.size()}; }

  // Waits until the contents are on the disk, so that not even a power cut leaves a half file under the final name.
  void Sync();
  void Publish();

 private:
  std::string path_, temporary_;
  Descriptor file_;
  Mapping memory_;
};

// Whether both name one existing file, or would after both are written.
bool SameFile(const std::string& a, const std::string& b);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_FILES_H_
