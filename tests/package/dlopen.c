/* dlopen LIBRARY... < NAMES: every library, opened by itself, resolves every name, to the same address in all of them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { kMaxNames = 4096 };

int main(int argc, char** argv) {
  static char names[kMaxNames][256];
  static void* first[kMaxNames];
  int count = 0, failures = 0;
  while (count < kMaxNames && scanf("%255s", names[count]) == 1) ++count;

  for (int library = 1; library < argc; ++library) {
    void* handle = dlopen(argv[library], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      ++failures;
      continue;
    }
    for (int i = 0; i < count; ++i) {
      void* symbol = dlsym(handle, names[i]);
      if (symbol == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        ++failures;
      } else if (first[i] != NULL && first[i] != symbol) {
        /* Two copies would have two tables of live handles: a tensor made by one would be unknown to the other. */
        fprintf(stderr, "%s: a second copy of %s\n", argv[library], names[i]);
        ++failures;
      }
      first[i] = symbol;
    }
  }
  printf("%d names in %d libraries, %d failures\n", count, argc - 1, failures);
  return failures != 0 || count == 0;
}
