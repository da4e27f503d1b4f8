#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "epmoe/comm/message_header.hpp"
#include "epmoe/prepare_finalize/prepare_finalize.hpp"

namespace epmoe {

/// What of a call's input does not fit. Travels in a header's row field, what was found in its value field, so that
/// every rank can say it in the same words.
enum class BadField : std::int32_t {
  x_dtype,
  x_hidden,
  x_rows,
  x_memory,
  routing_rows,
  routing_top_k,
  too_many_tokens,
  placement_experts,
  placement_ranks,
  refused_by_caller,
  output,
  y,
};

comm::Failure bad_input(BadField field, std::int64_t found, int rank);
/// "rank 2: hidden of x: found 15, wanted 16 (dispatch)".
std::string bad_input_message(const comm::Failure& failure, const PrepareFinalizeConfig& config, int ranks,
                              std::string_view phase);

/// Whether this rank's input is fit to be sent; ids are looked at last.
comm::Failure check_input(const PrepareInput& input, const PrepareFinalizeConfig& config, int rank, int ranks);

}  // namespace epmoe
