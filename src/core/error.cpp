#include "epmoe/core/error.hpp"

#include "core/name_table.hpp"

namespace epmoe {
namespace {

constexpr NamedValue<ErrorCode> kErrorCodes[] = {
    {ErrorCode::none, "none"},         {ErrorCode::config, "config"},
    {ErrorCode::input, "input"},       {ErrorCode::checkpoint, "checkpoint"},
    {ErrorCode::comm, "comm"},         {ErrorCode::peer_lost, "peer_lost"},
    {ErrorCode::timeout, "timeout"},   {ErrorCode::abandoned, "abandoned"},
    {ErrorCode::internal, "internal"},
};

}  // namespace

std::string_view name(ErrorCode code) {
  return find_name(kErrorCodes, code);
}

void throw_error(ErrorCode code, const std::string& what, int rank, const std::string& phase) {
  switch (code) {
    case ErrorCode::config: throw ConfigError(what, rank, phase);
    case ErrorCode::input: throw InputError(what, rank, phase);
    case ErrorCode::checkpoint: throw CheckpointError(what, rank, phase);
    case ErrorCode::comm: throw CommError(what, rank, phase);
    case ErrorCode::peer_lost: throw PeerLost(what, rank, phase);
    case ErrorCode::timeout: throw TimeoutError(what, rank, phase);
    case ErrorCode::abandoned: throw AbandonedError(what, rank, phase);
    case ErrorCode::none:
    case ErrorCode::internal: break;
  }
  throw InternalError(what, rank, phase);
}

}  // namespace epmoe
