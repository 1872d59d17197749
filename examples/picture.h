// Pictures as an example needs them: JPEG and PNG files read as RGB, class numbers written as a PNG with a palette.
#ifndef EXAMPLES_PICTURE_H_
#define EXAMPLES_PICTURE_H_

#include <jpeglib.h>
#include <png.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
  friend auto operator<=>(const Rgb&, const Rgb&) = default;
};
static_assert(sizeof(Rgb) == 3, "rows of samples are read into rows of these");

struct Picture {
  std::int64_t height = 0, width = 0;
  std::vector<Rgb> pixels;  // row-major
};

// libjpeg's own error handler prints its reason and ends the program.
inline Picture ReadJpeg(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_stdio_src(&jpeg, file.get());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  Picture picture{jpeg.output_height, jpeg.output_width, {}};
  picture.pixels.resize(static_cast<std::size_t>(picture.height * picture.width));
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = &picture.pixels[std::size_t{jpeg.output_scanline} * jpeg.output_width].r;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return picture;
}

inline Picture ReadPng(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) throw std::runtime_error(path + ": " + image.message);
  image.format = PNG_FORMAT_RGB;
  Picture picture{image.height, image.width, {}};
  picture.pixels.resize(static_cast<std::size_t>(picture.height * picture.width));
  const png_color background{};  // for transparent pixels
  if (png_image_finish_read(&image, &background, picture.pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(path + ": " + image.message);
  return picture;
}

// classes [height, width], each a number in the palette.
inline void WritePng(const std::string& path, std::int64_t height, std::int64_t width,
                     std::span<const std::uint8_t> classes, std::span<const Rgb> palette) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = static_cast<png_uint_32>(palette.size());
  if (png_image_write_to_file(&image, path.c_str(), 0, classes.data(), 0, palette.data()) == 0)
    throw std::runtime_error(path + ": " + image.message);
}

#endif  // EXAMPLES_PICTURE_H_
