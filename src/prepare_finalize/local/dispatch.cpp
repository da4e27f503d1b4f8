#include <string>

#include "prepare_finalize/dispatch_rows.hpp"
#include "prepare_finalize/local/local.hpp"

namespace epmoe {

Verdict Local::supports(const comm::ExpertGroup& group, const PrepareFinalizeConfig&) {
  if (group.size() == 1) return Verdict::yes();
  return Verdict::no("local: the group has " + std::to_string(group.size()) + " ranks, wanted 1");
}

void Local::dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const {
  const auto rows = call.plan.rows();
  auto* messages = call.exchange().hold(message_bytes(rows, rows + 1, terms().dispatch_format.row_bytes()));
  call.exchange().set_outbound(0, cut_messages(messages, rows, rows + 1, terms().dispatch_format.row_bytes()),
                               home_begin(call, 0, rows + 1));
  call.exchange().reserve_home();
  write_planned_rows(call, 0, input, messages, rows + 1, context);
}

}  // namespace epmoe
