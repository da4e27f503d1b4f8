#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

/// Every error the library throws. `what()` is one line that names what was wrong, what was found and what was
/// wanted; rank and phase where they are known. The library never prints and never exits.
namespace epmoe {

/// Stable numbers: they travel in message headers and are the C API's return codes.
enum class ErrorCode : std::int32_t {
  none = 0,
  config = 1,      ///< settings that do not fit together, or differ between ranks
  input = 2,       ///< a tensor, id or call of the caller's is wrong; the group stays usable
  checkpoint = 3,  ///< a file is missing, broken, or does not fit its config
  comm = 4,        ///< MPI reported a failure, or the protocol was violated
  peer_lost = 5,   ///< a rank of the group is gone
  timeout = 6,     ///< a wait passed its deadline; the group is broken
  abandoned = 7,   ///< a rank dropped a pending call before it was received
  internal = 8,    ///< a failure inside a stage (out of memory, workspace growth after lock)
};
std::string_view name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what, int rank = -1, std::string phase = {})
      : std::runtime_error(what), code_(code), rank_(rank), phase_(std::move(phase)) {}
  [[nodiscard]] ErrorCode code() const { return code_; }
  /// The rank at fault where known, else -1.
  [[nodiscard]] int rank() const { return rank_; }
  /// "dispatch", "combine", … where known, else empty.
  [[nodiscard]] const std::string& phase() const { return phase_; }

 private:
  ErrorCode code_;
  int rank_;
  std::string phase_;
};

template <ErrorCode Code>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& what, int rank = -1, std::string phase = {})
      : Error(Code, what, rank, std::move(phase)) {}
};
using ConfigError = ErrorOf<ErrorCode::config>;
using InputError = ErrorOf<ErrorCode::input>;
using CheckpointError = ErrorOf<ErrorCode::checkpoint>;
using CommError = ErrorOf<ErrorCode::comm>;
using PeerLost = ErrorOf<ErrorCode::peer_lost>;
using TimeoutError = ErrorOf<ErrorCode::timeout>;
using AbandonedError = ErrorOf<ErrorCode::abandoned>;
using InternalError = ErrorOf<ErrorCode::internal>;

/// Throws the class that belongs to `code`; used when an error has travelled in a message header.
[[noreturn]] void throw_error(ErrorCode code, const std::string& what, int rank, const std::string& phase);

/// What `supports(config)` answers: a refusal always has a reason that can be shown to a user.
struct Verdict {
  bool ok = true;
  std::string reason;
  static Verdict yes() { return {}; }
  static Verdict no(std::string why) { return {false, std::move(why)}; }
  explicit operator bool() const { return ok; }
};

}  // namespace epmoe
