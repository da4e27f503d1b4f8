// A fault of the kind named, between MPI's start and end: sanitizer builds must report it, suppressions or not.
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/comm/environment.hpp"

namespace {
void* volatile g_sink = nullptr;  // keeps the compiler from removing the faults
}

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  const epmoe::comm::Environment environment;
  const auto world = epmoe::comm::Communicator::world();
  if (fault == "leak") {
    g_sink = std::malloc(1000);
    g_sink = nullptr;
  } else if (fault == "overflow") {
    g_sink = std::malloc(16);
    std::memset(g_sink, 0, static_cast<std::size_t>(16 + argc));
    std::free(g_sink);
  } else if (fault == "undefined") {
    volatile int most = std::numeric_limits<int>::max();
    most = most + world.size();
  }
  return 0;
}
