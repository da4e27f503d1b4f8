#include "epmoe/comm/environment.hpp"

#include <fmt/format.h>

#include <cctype>

#include "comm/native.hpp"

namespace epmoe::comm {
namespace {

class WallClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return MPI_Wtime(); }
};

std::string_view thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE: return "MPI_THREAD_MULTIPLE";
    default: return "unknown";
  }
}

/// "Open MPI v4.1.4, package: …" → "Open MPI 4.1.4"; "MPICH Version:\t4.0.2\n…" → "MPICH 4.0.2".
std::string short_version(std::string text) {
  if (const auto end = text.find_first_of(",\n"); end != std::string::npos) text.resize(end);
  std::string words;
  std::size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
    std::size_t end = at;
    while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) == 0) ++end;
    std::string word = text.substr(at, end - at);
    at = end;
    if (word.empty() || word == "Version:") continue;
    if (word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1])) != 0) word.erase(0, 1);
    if (!words.empty()) words += ' ';
    words += word;
  }
  return words;
}

}  // namespace

Environment::Environment(bool multiple) {
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized == 0) {
    const int wanted = multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
    check(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init_thread");
    finalize_ = true;
    // MPICH raises what MPI_Testsome finds on these two instead of the request's communicator.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  } else {
    require_mpi();
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    if (finalize_) MPI_Finalize();
    throw CommError(fmt::format("MPI provides {}, wanted at least MPI_THREAD_SERIALIZED", thread_level_name(provided)));
  }
  multiple_ = provided >= MPI_THREAD_MULTIPLE;
}

Environment::~Environment() {
  int finalized = 0;
  if (finalize_ && MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Finalize();
}

std::string Environment::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  int major = 0;
  int minor = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  check(MPI_Get_version(&major, &minor), "MPI_Get_version");
  return fmt::format("{}, MPI {}.{}", short_version({text, static_cast<std::size_t>(length)}), major, minor);
}

std::string Environment::processor_name() {
  char text[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  check(MPI_Get_processor_name(text, &length), "MPI_Get_processor_name");
  return {text, static_cast<std::size_t>(length)};
}

const Clock& Environment::clock() {
  static const WallClock clock;
  return clock;
}

}  // namespace epmoe::comm
