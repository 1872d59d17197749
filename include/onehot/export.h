#ifndef ONEHOT_EXPORT_H_
#define ONEHOT_EXPORT_H_

// The library is built with hidden visibility; this marks what it exports.
#if defined(__GNUC__)
#define ONEHOT_API __attribute__((visibility("default")))
#else
#define ONEHOT_API
#endif

#endif  // ONEHOT_EXPORT_H_
