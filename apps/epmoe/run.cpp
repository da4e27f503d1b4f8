#include "run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>

#include "epmoe/comm/step_plan.hpp"
#include "epmoe/observe/stage_times.hpp"
#include "expert_map.hpp"
#include "model.hpp"
#include "run_output.hpp"
#include "run_report.hpp"
#include "tokens.hpp"

namespace epmoe::cli {
namespace {

/// "auto" depends on the CPU, so rank 0 decides for all.
ComputeType agree_compute_type(Job& job, const RunOptions& options, DType checkpoint) {
  if (const auto asked = parse_compute_type(options.compute_dtype)) return *asked;
  std::string reason;
  const auto resolved = resolve_compute_type(checkpoint, &reason);
  if (job.first() && !reason.empty())
    job.context().log(name(resolved) == name(checkpoint) ? LogLevel::debug : LogLevel::info, reason);
  const auto mine = static_cast<std::byte>(resolved);
  return static_cast<ComputeType>(
      job.world().broadcast({mine}, 0, job.context(), "agreeing on the compute type").at(0));
}

RunConfig make_config(Job& job, const RunOptions& options, DType checkpoint) {
  RunConfig config;
  config.compute = agree_compute_type(job, options, checkpoint);
  config.dispatch = parse_dispatch_type(options.dispatch_dtype).value_or(default_dispatch_type(config.compute));
  config.combine = options.reproducible
                       ? CombineType::f32
                       : parse_combine_type(options.combine_dtype).value_or(default_combine_type(config.compute));
  config.strategy = !options.strategy.empty() ? options.strategy : job.size() == 1 ? "local" : "alltoall";
  config.backend = options.backend;
  config.isa = options.isa;
  config.reproducible = options.reproducible;
  config.kernel.chunking = options.chunk_size > 0;
  if (options.chunk_size > 0) config.kernel.chunk_rows = options.chunk_size;
  config.kernel.pipeline = options.pipeline;
  config.kernel.shared_token_threshold = options.shared_threshold;
  return config;
}

/// Where experts live, for layers of any number of experts.
class Placer {
 public:
  Placer(Job& job, const RunOptions& options)
      : ranks_(job.size()), round_robin_(options.placement == "round_robin"), file_(options.expert_map) {
    if (!file_.empty()) map_ = read_expert_map(job, file_);
  }
  [[nodiscard]] std::shared_ptr<const Placement> place(std::int64_t experts) const {
    if (file_.empty())
      return round_robin_ ? Placement::round_robin(experts, ranks_) : Placement::linear(experts, ranks_);
    auto logical = map_.logical;
    if (logical.empty()) {
      if (static_cast<std::int64_t>(map_.owner.size()) != experts)
        throw ConfigError(fmt::format("--expert-map {}: {} owners found, one for each of {} experts wanted", file_,
                                      map_.owner.size(), experts));
      for (std::int64_t e = 0; e < experts; ++e) logical.push_back(static_cast<std::int32_t>(e));
    }
    return Placement::table(experts, ranks_, map_.owner, logical);
  }
  [[nodiscard]] std::string name() const { return !file_.empty() ? file_ : round_robin_ ? "round_robin" : "linear"; }

 private:
  int ranks_;
  bool round_robin_;
  std::string file_;
  ExpertMap map_;
};

/// How far loading is, on a terminal, on rank 0.
class LoadProgress {
 public:
  LoadProgress(Job& job, const Model& model, std::int64_t layer)
      : show_(job.first() && isatty(STDERR_FILENO) == 1),
        clock_(job.context().clock),
        model_(model),
        layer_(layer),
        start_(clock_->now()) {}
  ~LoadProgress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;
  void operator()(std::int64_t done, std::int64_t of) {
    if (!show_) return;
    shown_ = true;
    const auto gigabytes = static_cast<double>(model_.bytes_read()) * 1e-9;
    fmt::print(stderr, "\rlayer {}: expert {} of {}, {:.2f} GB/s\033[K", layer_, done, of,
               gigabytes / std::max(1e-9, clock_->now() - start_));
    std::fflush(stderr);
  }
  [[nodiscard]] double seconds() const { return clock_->now() - start_; }

 private:
  bool show_, shown_ = false;
  const Clock* clock_;
  const Model& model_;
  std::int64_t layer_;
  double start_;
};

class Run {
 public:
  Run(Job& job, const RunOptions& options)
      : job_(job),
        options_(options),
        threads_(job.set_threads(options.threads)),
        model_(open_model(job, options.model_dir, options.family, options.seed)),
        layers_(select_layers(*model_, options.layers)),
        placer_(job, options),
        tokens_(load_tokens(job, options, model_->config(layers_.front()).hidden)),
        config_(make_config(job, options, model_->dtype())),
        group_(job.make_group({})) {
    if (job.first())
      for (const auto& note : model_->notes()) job.context().log(LogLevel::info, note);
    if (!options.json.empty() && options.json != "-")
      job.only_first([&] { check_writable(options.json); }, "checking --json");
    job.only_first(
        [&] {
          auto read = model_->files();
          for (const auto& file : {options.input, options.expert_map})
            if (!file.empty()) read.push_back(file);
          if (!options.output.empty()) check_not_read("--output", options.output, read);
          if (!options.json.empty() && options.json != "-") check_not_read("--json", options.json, read);
        },
        "checking outputs");
    if (!options.output.empty()) output_.emplace(job, options.output);
  }

  int go() {
    RunSummary summary;
    for (const auto layer : layers_) summary.layers.push_back(run_layer(layer, summary));
    if (output_) output_->write(job_);
    report(summary);
    return summary.ok() ? kFine : kNo;
  }

 private:
  RunSummary::Layer run_layer(std::int64_t index, RunSummary& summary) {
    auto& context = job_.context();
    LayerSource source;
    LoadProgress progress(job_, *model_, index);
    job_.together([&] { source = model_->source(index); }, fmt::format("reading layer {}", index));
    source.progress = [&](std::int64_t done, std::int64_t of) { progress(done, of); };
    if (source.config.hidden != tokens_.x.cols)
      throw ConfigError(fmt::format("layer {}: hidden size {} found, {} of the input wanted", index,
                                    source.config.hidden, tokens_.x.cols));
    MoeLayer layer(group_, placer_.place(source.config.experts), source, config_, context);

    RankReport mine;
    const double load_seconds = progress.seconds();
    mine.bytes_read = static_cast<std::int64_t>(model_->bytes_read());
    mine.packed_bytes = layer.packed_bytes();
    mine.tokens = tokens_.x.rows;
    model_->release();  // what it read is packed

    StageTimes times(group_->size(), source.config.experts);
    std::vector<float> y(static_cast<std::size_t>(tokens_.x.rows * tokens_.x.cols));
    const auto y_view = matrix_view(y.data(), tokens_.x.rows, tokens_.x.cols);
    std::optional<OwnedRouting> routing;
    context.observer = &times;
    for (std::int64_t i = 0; i < options_.repeat; ++i) {
      times.reset();
      const double start = context.clock->now();
      comm::StepVote vote;
      vote.step = step_++;
      vote.tokens = tokens_.x.rows;
      const auto plan = comm::agree_step(*group_, vote, context);
      routing.emplace(layer.route(tokens_.x, context));
      const auto result = layer.forward(tokens_.x, routing->view(), y_view, &plan, context);
      add_call(mine, times, result, context.clock->now() - start);
    }
    context.observer = nullptr;

    RunSummary::Layer done;
    done.index = index;
    done.shape = source.config;
    done.report = join(mine, times);
    done.load_seconds = slowest(load_seconds);
    if (output_) output_->add(job_, index, y_view, routing->view());
    if (options_.verify) done.verification = verify(index, y_view, routing->view());
    if (summary.layers.empty()) {
      summary.strategy = layer.kernel().prepare_finalize().name();
      summary.backend = layer.kernel().experts().name();
      summary.isa = layer.kernel().experts().isa();
    }
    return done;
  }

  /// Rows and bytes are those of any call, they repeat; seconds are summed here and divided in join.
  void add_call(RankReport& mine, const StageTimes& times, const ForwardResult& result, double seconds) {
    if (mine.total_seconds == 0.0) phase_seconds_.fill(0.0);
    mine.total_seconds += seconds;
    for (std::size_t p = 0; p < phase_seconds_.size(); ++p) phase_seconds_[p] += times.seconds(static_cast<Phase>(p));
    mine.rows_received = result.rows_received;
    mine.entries_computed = result.entries_computed;
    mine.chunks = result.chunks;
    mine.bytes_sent = result.bytes_sent;
  }
  RunReport join(RankReport mine, StageTimes& times) {
    const auto repeats = static_cast<double>(options_.repeat);
    mine.total_seconds /= repeats;
    for (std::size_t p = 0; p < phase_seconds_.size(); ++p) {
      const auto phase = static_cast<Phase>(p);
      times.add_time(phase, phase_seconds_[p] / repeats - times.seconds(phase));
    }
    return join_reports(job_.world(), mine, times, job_.context());
  }
  double slowest(double seconds) {
    double most = 0.0;
    for (const auto& bytes :
         job_.world().all_gather(std::as_bytes(std::span(&seconds, 1)), job_.context(), "joining load times")) {
      double theirs = 0.0;
      std::memcpy(&theirs, bytes.data(), sizeof theirs);
      most = std::max(most, theirs);
    }
    return most;
  }
  /// From a source of its own: the bytes counted stay those of the run.
  Verification verify(std::int64_t index, ConstMatrixView y, const Routing& routing) {
    LayerSource source;
    job_.together([&] { source = model_->source(index); }, fmt::format("reading layer {} for --verify", index));
    const auto result = verify_layer(job_.world(), source, config_, tokens_.x, routing, y, job_.context());
    model_->release();
    return result;
  }

  void report(RunSummary& s) {
    s.model = model_->name();
    s.family = model_->family();
    s.shape = s.layers.front().shape;
    s.ranks = job_.size();
    s.threads = threads_;
    s.placement = placer_.name();
    s.compute = name(config_.compute);
    s.dispatch = name(config_.dispatch);
    s.combine = name(config_.combine);
    s.reproducible = config_.reproducible;
    s.repeat = options_.repeat;
    s.tokens_per_rank = tokens_.per_rank;
    s.header_bytes = model_->header_bytes();
    job_.only_first(
        [&] {
          if (!options_.json.empty()) write_text(options_.json, as_json(s));
          if (options_.json != "-") write_text("-", as_table(s, options_.stats));
        },
        "reporting");
  }

  Job& job_;
  const RunOptions& options_;
  int threads_;
  std::unique_ptr<Model> model_;
  std::vector<std::int64_t> layers_;
  Placer placer_;
  Tokens tokens_;
  RunConfig config_;
  std::shared_ptr<comm::ExpertGroup> group_;
  std::optional<RunOutput> output_;
  std::uint64_t step_ = 0;
  std::array<double, static_cast<std::size_t>(Phase::count)> phase_seconds_{};
};

}  // namespace

int run(Job& job, const RunOptions& options) {
  options.check();
  job.set_timeout(options.timeout);
  return Run(job, options).go();
}

}  // namespace epmoe::cli
