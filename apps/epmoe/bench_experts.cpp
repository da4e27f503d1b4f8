#include "bench_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>

#include "bench_contender.hpp"
#include "bench_formats.hpp"
#include "bench_machine.hpp"
#include "bench_peer.hpp"
#include "bench_samples.hpp"
#include "epmoe/core/error.hpp"
#include "launch.hpp"
#include "quantiles.hpp"

namespace epmoe::cli {
namespace {

constexpr std::int64_t kBlocksPerExpert = 64;                          // that are checked
constexpr std::int64_t kMostSets = 16;                                 // of routing, used in turn
constexpr std::int64_t kAssumedCacheBytes = std::int64_t{128} << 20U;  // where the system shows none

class ExpertsBench {
 public:
  ExpertsBench(Job& job, const BenchExpertsOptions& options, BenchReport& report)
      : options_(options),
        report_(report),
        shape_(options.shape()),
        shown_cache_bytes_(last_level_cache_bytes()),
        cache_bytes_(shown_cache_bytes_ > 0 ? shown_cache_bytes_ : kAssumedCacheBytes),
        probe_bytes_(std::max(4 * cache_bytes_, std::int64_t{128} << 20U)),
        probe_(std::min(4 * probe_bytes_, std::max(available_memory_bytes() / 4, std::int64_t{64} << 20U))) {
    threads_ = options.threads;
    const CoreShare share = share_cores(job.world(), job.context());
    if (threads_.empty()) threads_.push_back(share.threads);
    for (const std::int64_t count : threads_)
      executors_.push_back(make_executor(share, static_cast<int>(count), job.context()));
    context_.logger = job.context().logger;
    widest_ = std::max_element(executors_.begin(), executors_.end(), [](const auto& a, const auto& b) {
                return a->workers() < b->workers();
              })->get();
    for (const std::string& command : options.peers) peers_.push_back(std::make_unique<PeerProcess>(command));
    weights_ = std::make_unique<BenchWeights>(shape_, options.seed, widest_->workers());
  }

  /// Lines are written at the end, since the whole run says which samples were disturbed.
  int run() {
    try {
      const int code = measure_all();
      write_lines();
      return code;
    } catch (...) {
      write_lines();  // what was measured before a peer broke off counts
      throw;
    }
  }

 private:
  void write_lines() {
    summarise(series_);
    for (const BenchSeries& series : series_) report_.add(series.line);
  }

  int measure_all() {
    report_.heading(fmt::format("model     {}: hidden {}, intermediate {}, {} experts, top-{}", options_.model_name(),
                                shape_.hidden, shape_.intermediate, shape_.experts, shape_.top_k));
    report_.heading(fmt::format("peaks     {} instructions, last-level cache {} MiB{}", MachineProbe::isa(),
                                cache_bytes_ >> 20U, shown_cache_bytes_ > 0 ? "" : " assumed: the system shows none"));
    bool any = false;
    for (const std::string& name : options_.formats) {
      const auto& formats = bench_formats();
      const BenchFormat& format =
          *std::find_if(formats.begin(), formats.end(), [&](const BenchFormat& f) { return f.name == name; });
      if (!prepare(format)) continue;
      any = true;
      for (const std::int64_t tokens : options_.tokens)
        for (const std::string& skew : options_.skews)
          if (!measure(format, tokens, skew)) return kNo;
    }
    if (!any) throw ConfigError("bench experts: no back end takes any of the formats (--log-level debug says why)");
    return kFine;
  }

  /// Makes the back ends that take the format, and their weights. False if none does.
  bool prepare(const BenchFormat& format) {
    contenders_.clear();
    layers_.clear();
    context_.executor = widest_;
    config_ = {};
    config_.shape = shape_;
    config_.quant = format.quant;
    config_.local_experts = shape_.experts;
    std::vector<std::unique_ptr<Experts>> made;
    for (const BackendInfo& backend : backends()) {
      if (std::find(options_.backends.begin(), options_.backends.end(), backend.name) == options_.backends.end())
        continue;
      std::vector<std::string> isas{""};
      if (backend.name == "native" && !options_.isas.empty()) isas = options_.isas;
      for (const std::string& isa : isas) {
        ExpertsConfig config = config_;
        config.isa = isa;
        if (const Verdict verdict = backend.supports(config); !verdict) {
          if (!isa.empty()) throw ConfigError(fmt::format("--isa {}: {}", isa, verdict.reason));
          fmt::print(stderr, "epmoe: left out: {} {}: {}\n", backend.name, format.name, verdict.reason);
          continue;
        }
        made.push_back(backend.make(config));
      }
    }
    // Peers first: what they take is then no longer free for copies of ours.
    std::vector<std::unique_ptr<BenchContender>> peers;
    for (const auto& process : peers_) {
      std::string refusal;
      if (auto peer = PeerContender::make(*process, format.name, shape_, options_.seed, &refusal))
        peers.push_back(std::move(peer));
      else
        fmt::print(stderr, "epmoe: left out: --peer {} {}: {}\n", process->command(), format.name, refusal);
    }
    for (auto& experts : made) {
      BenchLayers& layers = layers_for(experts->packed_layout());
      contenders_.push_back(std::make_unique<BackendContender>(std::move(experts), layers, call_));
    }
    for (auto& peer : peers) contenders_.push_back(std::move(peer));
    return !contenders_.empty();
  }

  BenchLayers& layers_for(const PackedLayout& layout) {
    for (BenchLayers& layers : layers_)
      if (layers.layout == layout) return layers;
    layers_.push_back(make_bench_layers(layout, shape_.experts, *weights_, 8 * cache_bytes_,
                                        available_memory_bytes() / 4 * 3, context_));
    if (!layers_.back().note.empty()) fmt::print(stderr, "epmoe: {}\n", layers_.back().note);
    return layers_.back();
  }

  /// All back ends and thread counts for one problem, side by side. False if a result is wrong.
  bool measure(const BenchFormat& format, std::int64_t tokens, const std::string& skew) {
    context_.executor = widest_;
    const BenchBatches batches =
        make_bench_batches(shape_, format.rows, tokens, skew, options_.seed, std::min(options_.repeats, kMostSets));
    const SpotCheck check(
        config_, batches.sets.front().batch, [this](std::int32_t e, int worker) { return weights_->expert(e, worker); },
        kBlocksPerExpert, options_.seed, context_);
    BenchExpertsLine line;
    line.model = options_.model_name();
    line.format = format.name;
    line.skew = skew;
    line.tokens = tokens;
    line.flops = (is_gated(shape_.activation) ? 6.0 : 4.0) * static_cast<double>(tokens * shape_.top_k) *
                 static_cast<double>(shape_.hidden) * static_cast<double>(shape_.intermediate);
    for (const auto& executor : executors_) {
      context_.executor = executor.get();
      line.threads = executor->workers();
      for (const auto& contender : contenders_)
        if (const std::string wrong = contender->prepare(batches, check, context_); !wrong.empty()) {
          fmt::print(stderr, "epmoe: wrong result: {} ({}), {}, {} tokens, {}, {} threads: {}\n", contender->name(),
                     contender->isa(), line.format, line.tokens, line.skew, line.threads, wrong);
          return false;
        }
      sample_all(format, batches, line);
    }
    return true;
  }

  /// Contenders take turns, so that what the machine does meanwhile hits all alike.
  void sample_all(const BenchFormat& format, const BenchBatches& batches, const BenchExpertsLine& line) {
    std::vector<BenchSeries> series(contenders_.size(), {line, format.dot, {}});
    const double bytes_each = format.expert_bytes(shape_);
    for (std::size_t repeat = 0; repeat < static_cast<std::size_t>(options_.repeats); ++repeat)
      for (std::size_t c = 0; c < contenders_.size(); ++c) {
        const std::size_t set = repeat % batches.sets.size();
        BenchSample sample = take_sample(probe_, format.dot, probe_bytes_, *context_.executor,
                                         [&](BenchSample& s) { contenders_[c]->run(set, s, context_); });
        sample.expert_bytes =
            static_cast<double>(batches.sets[set].experts_hit) * contenders_[c]->expert_bytes(bytes_each);
        series[c].samples.push_back(sample);
      }
    std::string times;
    for (std::size_t c = 0; c < contenders_.size(); ++c) {
      series[c].line.backend = contenders_[c]->name();
      series[c].line.isa = contenders_[c]->isa();
      series[c].line.checked = contenders_[c]->checked();
      std::vector<double> seconds;
      for (const BenchSample& s : series[c].samples) seconds.push_back(s.seconds);
      times += fmt::format("{} {} {:.3f} ms", times.empty() ? "" : ",", contenders_[c]->name(),
                           quantile(seconds, 0.5) * 1e3);
      series_.push_back(std::move(series[c]));
    }
    context_.log(LogLevel::info, fmt::format("{}, {} tokens, {}, {} threads:{}", line.format, line.tokens, line.skew,
                                             line.threads, times));
  }

  const BenchExpertsOptions& options_;
  BenchReport& report_;
  MoeConfig shape_;
  std::int64_t shown_cache_bytes_, cache_bytes_, probe_bytes_;
  MachineProbe probe_;
  std::vector<std::int64_t> threads_;
  std::vector<std::unique_ptr<Executor>> executors_;
  Executor* widest_ = nullptr;
  std::unique_ptr<BenchWeights> weights_;
  ExecutionContext context_;
  ExpertsConfig config_;
  std::deque<BenchLayers> layers_;
  BenchCall call_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;
  std::vector<std::unique_ptr<BenchContender>> contenders_;
  std::vector<BenchSeries> series_;
};

}  // namespace

int bench_experts(Job& job, const BenchExpertsOptions& options) {
  options.check();
  if (job.size() > 1) throw ConfigError(fmt::format("bench experts: measures one process, {} ranks found", job.size()));
  BenchReport report(options.json);
  return ExpertsBench(job, options, report).run();
}

}  // namespace epmoe::cli
