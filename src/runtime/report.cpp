#include "epmoe/runtime/report.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace epmoe {
namespace {

template <class T>
void append(std::vector<std::byte>& bytes, const T* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* from = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), from, from + count * sizeof(T));
}
template <class T>
std::size_t take(const std::vector<std::byte>& bytes, std::size_t at, T* values, std::size_t count) {
  if (count > 0) std::memcpy(values, bytes.data() + at, count * sizeof(T));
  return at + count * sizeof(T);
}

RunReport::Spread spread(const std::vector<RankReport>& ranks, double (*value)(const RankReport&, std::size_t),
                         std::size_t i) {
  RunReport::Spread result{value(ranks.front(), i), 0.0, value(ranks.front(), i)};
  for (const auto& rank : ranks) {
    result.min = std::min(result.min, value(rank, i));
    result.max = std::max(result.max, value(rank, i));
    result.mean += value(rank, i) / static_cast<double>(ranks.size());
  }
  return result;
}

}  // namespace

RunReport::Spread RunReport::phase(Phase phase) const {
  return spread(
      ranks, [](const RankReport& r, std::size_t i) { return r.seconds[i]; }, static_cast<std::size_t>(phase));
}
RunReport::Spread RunReport::total() const {
  return spread(ranks, [](const RankReport& r, std::size_t) { return r.total_seconds; }, 0);
}

RunReport join_reports(const comm::Communicator& comm, const RankReport& mine, const StageTimes& times,
                       const ExecutionContext& context) {
  auto own = mine;
  for (std::size_t p = 0; p < own.seconds.size(); ++p) own.seconds[p] = times.seconds(static_cast<Phase>(p));
  std::vector<std::byte> bytes;
  append(bytes, &own, 1);
  append(bytes, times.expert_rows().data(), times.expert_rows().size());
  append(bytes, times.dispatch().data(), times.dispatch().size());
  append(bytes, times.combine().data(), times.combine().size());

  RunReport report;
  report.expert_rows.assign(times.expert_rows().size(), 0);
  for (const auto& part : comm.all_gather(bytes, context, "joining reports")) {
    RankReport rank;
    std::vector<std::int64_t> rows(times.expert_rows().size());
    std::vector<PeerTraffic> dispatch(times.dispatch().size()), combine(times.combine().size());
    auto at = take(part, 0, &rank, 1);
    at = take(part, at, rows.data(), rows.size());
    at = take(part, at, dispatch.data(), dispatch.size());
    take(part, at, combine.data(), combine.size());
    report.ranks.push_back(rank);
    for (std::size_t e = 0; e < rows.size(); ++e) report.expert_rows[e] += rows[e];
    report.dispatch.push_back(std::move(dispatch));
    report.combine.push_back(std::move(combine));
  }
  return report;
}

}  // namespace epmoe
