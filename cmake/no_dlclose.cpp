// Linked into sanitizer builds only. MPI unloads its plugins before the leak check runs; kept mapped, they have names
// in the reports, and scripts/sanitizers/lsan.supp can tell their leaks from ours.
#include <dlfcn.h>

extern "C" int dlclose(void* /*handle*/) noexcept {
  return 0;
}
