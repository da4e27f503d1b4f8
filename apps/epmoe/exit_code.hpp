#pragma once
#include "epmoe/core/error.hpp"

namespace epmoe::cli {

/// What the command's exit status means, on every rank.
enum ExitCode : int {
  kFine = 0,
  kNo = 1,        ///< the answer is no: verification failed
  kBadInput = 2,  ///< usage, configuration or bad input
  kFailed = 3,    ///< communication (or the run itself) failed
};

inline ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::config:
    case ErrorCode::input:
    case ErrorCode::checkpoint: return kBadInput;
    default: return kFailed;
  }
}

}  // namespace epmoe::cli
