#include "cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/failure.h"
#include "cli/progress.h"
#include "cli/signals.h"

namespace onehot::cli {
namespace {

namespace fs = std::filesystem;

#ifndef MADV_POPULATE_READ  // C libraries before 2.35
#define MADV_POPULATE_READ 22
#endif

[[noreturn]] void Fail(const std::string& path, const std::string& what, int error) {
  throw Failure(Exit::kFile, fmt::format("{}: {}: {}", path, what, std::generic_category().message(error)));
}

// What a pipe holds, to its end. Grows by doubling: its size is known only then.
std::pair<Mapping, std::size_t> ReadToEnd(int file, const std::string& path) {
  constexpr std::size_t kFirst = std::size_t{1} << 20;
  Mapping memory = Mapping::Anonymous(kFirst, path);
  std::size_t size = 0;
  for (;;) {
    if (size == memory.size()) {
      Mapping larger = Mapping::Anonymous(2 * size, path);
      std::memcpy(larger.data(), memory.data(), size);
      memory = std::move(larger);
    }
    const ssize_t got = ::read(file, memory.data() + size, memory.size() - size);
    if (got == 0) return {std::move(memory), size};
    if (got > 0) {
      size += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      Fail(path, "cannot be read", errno);
    }
    ThrowIfInterrupted();
  }
}

// Where writing to `path` writes: the end of a chain of symbolic links, so that links survive the rename.
std::string Destination(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_symlink(fs::symlink_status(path, ignored))) return path;
  const fs::path resolved = fs::weakly_canonical(path, ignored);
  return ignored ? path : resolved.string();
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Mapping Mapping::Anonymous(std::size_t size, const std::string& purpose) {
  if (size == 0) return {};
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw Failure(Exit::kData, fmt::format("{}: no memory for {} bytes", purpose, size));
  ::madvise(data, size, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(data), size};
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    ThrowIfInterrupted();
    Fail(path_, "cannot be opened", error);
  }
  struct stat status;
  if (::fstat(file.get(), &status) != 0) Fail(path_, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) Fail(path_, "cannot be read", EISDIR);
  if (!S_ISREG(status.st_mode)) {
    std::tie(memory_, size_) = ReadToEnd(file.get(), path_);
    return;
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) Fail(path_, "cannot be mapped", errno);
  memory_ = Mapping(static_cast<std::byte*>(data), size_);
}

void InputFile::ReadAhead() const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page;
  if (memory_.data() == nullptr || size_ > memory / 2) return;
  Progress progress("reading " + path_);
  // A few milliseconds of a disk, and a multiple of every page size.
  constexpr std::size_t kStep = std::size_t{16} << 20;
  for (std::size_t begin = 0; begin < size_; begin += kStep) {
    ThrowIfInterrupted();
    progress.Update(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(size_));
    // Fills the page tables as well, which costs less than a fault for each piece. Kernels before 5.14 lack it, and
    // then the faults come later.
    if (::madvise(memory_.data() + begin, std::min(kStep, size_ - begin), MADV_POPULATE_READ) == 0) continue;
    if (errno == EINVAL) return;
    if (errno == EFAULT)
      throw Failure(Exit::kFile,
                    fmt::format("{}: could not be read: it was cut short during the run, or its disk failed", path_));
  }
}

OutputFile::OutputFile(const std::string& path, std::size_t size) : path_(Destination(path)) {
  struct stat existing;
  const bool exists = ::stat(path_.c_str(), &existing) == 0;
  // Renaming over a device or a pipe would replace it.
  if (exists && !S_ISREG(existing.st_mode))
    throw Failure(Exit::kFile, fmt::format("{}: exists and is not a regular file", path));

  const fs::path place(path_);
  if (place.filename().empty()) throw Failure(Exit::kFile, fmt::format("'{}': is not the name of a file", path));
  // A long name is cut, so that the temporary one fits the 255 bytes of a name.
  const std::string name = fmt::format(".{}.XXXXXX", place.filename().string().substr(0, 200));
  temporary_ = (place.parent_path() / name).string();
  file_ = Descriptor(::mkostemp(temporary_.data(), O_CLOEXEC));
  if (file_.get() < 0) Fail(path, "cannot be created", errno);
  RememberTemporary(temporary_.c_str());

  // The destructor does not run for what throws from here on.
  try {
    // mkostemp lets nobody else read; this is what open would have given.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(file_.get(), exists ? existing.st_mode & 0777 : 0666 & ~mask);
    int error = 0;
    do {
      error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(size));
      ThrowIfInterrupted();
    } while (error == EINTR);
    if (error != 0) Fail(path, fmt::format("no room for {} bytes", size), error);
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (data == MAP_FAILED) Fail(path, "cannot be mapped", errno);
    memory_ = Mapping(static_cast<std::byte*>(data), size);
  } catch (...) {
    ::unlink(temporary_.c_str());
    ForgetTemporary(temporary_.c_str());
    throw;
  }
}

OutputFile::~OutputFile() {
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  ForgetTemporary(temporary_.c_str());
}

void OutputFile::Sync() {
  // Errors of writing mapped pages back surface here.
  if (::fsync(file_.get()) != 0) Fail(path_, "cannot be written", errno);
  ThrowIfInterrupted();
}

void OutputFile::Publish() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) Fail(path_, "cannot be replaced", errno);
  ForgetTemporary(temporary_.c_str());
  temporary_.clear();
}

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (fs::equivalent(a, b, ignored)) return true;
  // Relative to the current folder, which weakly_canonical leaves out for files that do not exist.
  const fs::path full_a = fs::weakly_canonical(fs::absolute(a, ignored), ignored);
  const fs::path full_b = fs::weakly_canonical(fs::absolute(b, ignored), ignored);
  return full_a == full_b;
}

}  // namespace onehot::cli
