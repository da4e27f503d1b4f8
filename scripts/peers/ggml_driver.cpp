// ggml's experts for `epmoe bench experts --peer`: answers questions on stdin, a JSON object a line, on stdout. The
// questions are described in apps/epmoe/bench_peer.hpp. Built by ggml.sh beside this file.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using Context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using Buffer = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;

/// What the peer cannot do; the benchmark goes on without it.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ggml_type type_of(const std::string& format) {
  if (format == "f32") return GGML_TYPE_F32;
  if (format == "f16") return GGML_TYPE_F16;
  if (format == "bf16") return GGML_TYPE_BF16;
  if (format == "int8") return GGML_TYPE_Q8_0;
  if (format.starts_with("int4")) return GGML_TYPE_Q4_0;
  if (format == "mxfp4") return GGML_TYPE_MXFP4;
  throw Refusal("ggml has no type like " + format);
}

/// Uniform in [-1, 1): any (stream, index) at any time.
float noise(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t z = stream * 0x9e3779b97f4a7c15U + index * 0xd1342543de82ef95U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<float>(static_cast<std::int32_t>(z >> 32U)) * 0x1p-31F;
}

Context make_context(std::size_t tensors) {
  const std::size_t bytes = tensors * ggml_tensor_overhead() + ggml_graph_overhead();
  return {ggml_init({bytes, nullptr, true}), ggml_free};
}

/// One weight matrix of all experts: [k, n, experts], k innermost. Values are functions of their place, so that the
/// check can make them again after a back end has rearranged them.
struct Matrix {
  ggml_type type;
  std::int64_t k, n, experts;
  std::uint64_t seed;
  ggml_tensor* tensor = nullptr;

  [[nodiscard]] std::size_t row_bytes() const { return ggml_row_size(type, k); }
  void make_row(std::int64_t expert, std::int64_t row, float* scratch, void* out) const {
    const float scale = std::sqrt(3.0F / static_cast<float>(k));
    const auto stream = seed + static_cast<std::uint64_t>(expert * n + row);
    for (std::int64_t i = 0; i < k; ++i) scratch[i] = scale * noise(stream, static_cast<std::uint64_t>(i));
    ggml_quantize_chunk(type, scratch, out, 0, 1, k, nullptr);
  }
  void fill() const {
    std::vector<std::uint8_t> bytes(ggml_nbytes(tensor));
#pragma omp parallel for schedule(static)
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<float> scratch(static_cast<std::size_t>(k));
      for (std::int64_t r = 0; r < n; ++r)
        make_row(e, r, scratch.data(), bytes.data() + static_cast<std::size_t>(e * n + r) * row_bytes());
    }
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
  }
  /// An expert's matrix times a vector, in f64 over the stored values.
  [[nodiscard]] std::vector<double> times(std::int64_t expert, const std::vector<double>& x) const {
    std::vector<double> y(static_cast<std::size_t>(n));
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < n; ++r) {
      std::vector<float> row(static_cast<std::size_t>(k));
      std::vector<std::uint8_t> bytes(row_bytes());
      make_row(expert, r, row.data(), bytes.data());
      if (type != GGML_TYPE_F32) ggml_get_type_traits(type)->to_float(bytes.data(), row.data(), k);
      double sum = 0.0;
      for (std::size_t i = 0; i < row.size(); ++i) sum += x[i] * static_cast<double>(row[i]);
      y[static_cast<std::size_t>(r)] = sum;
    }
    return y;
  }
};

class Peer {
 public:
  Peer() {
    const auto find = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_.get())), "ggml_backend_dev_get_extra_bufts"));
    if (find == nullptr) return;
    for (auto* type = find(device()); type != nullptr && *type != nullptr; ++type) buffer_types_.push_back(*type);
  }

  json layer(const json& ask) {
    drop_graph();
    weights_.reset();
    hidden_ = ask.at("hidden");
    intermediate_ = ask.at("intermediate");
    experts_ = ask.at("experts");
    const ggml_type type = type_of(ask.at("format"));
    for (const std::int64_t k : {hidden_, intermediate_})
      if (k % ggml_blck_size(type) != 0)
        throw Refusal(std::string(ggml_type_name(type)) + " wants sizes in multiples of " +
                      std::to_string(ggml_blck_size(type)));
    const std::uint64_t seed = ask.at("seed").get<std::uint64_t>() << 40U;
    gate_ = {type, hidden_, intermediate_, experts_, seed};
    up_ = {type, hidden_, intermediate_, experts_, seed + (1U << 30U)};
    down_ = {type, intermediate_, hidden_, experts_, seed + (2U << 30U)};
    std::string kind = ggml_type_name(type);
    if (ggml_is_quantized(type))
      for (auto* buffer_type : buffer_types_)
        if (!weights_ && place(buffer_type)) kind += std::string(" ") + ggml_backend_buft_name(buffer_type);
    if (!weights_ && !place(ggml_backend_cpu_buffer_type())) throw Refusal("no MUL_MAT_ID of " + kind);
    std::size_t bytes = 0;
    for (Matrix* matrix : {&gate_, &up_, &down_}) {
      matrix->fill();
      bytes += ggml_nbytes(matrix->tensor);
    }
    return {
        {"name", "ggml"}, {"isa", kind}, {"expert_bytes", static_cast<double>(bytes) / static_cast<double>(experts_)}};
  }

  json batch(const json& ask) {
    if (!weights_) throw std::runtime_error("a batch before a layer");
    const std::int64_t tokens = ask.at("tokens"), top_k = ask.at("top_k");
    if (graph_ == nullptr || tokens != tokens_ || top_k != top_k_) build(tokens, top_k);
    const std::size_t set = ask.at("set");
    if (sets_.size() <= set) sets_.resize(set + 1);
    sets_[set] = ask.at("ids").get<std::vector<std::int32_t>>();
    ggml_backend_cpu_set_n_threads(backend_.get(), ask.at("threads"));
    compute(set);
    if (set == 0)
      if (const double error = worst_error(sets_[set]); !(error <= kTolerance))
        return {{"wrong", "relative error " + std::to_string(error)}};
    return {{"checked", true}};
  }

  json run(const json& ask) { return {{"seconds", compute(ask.at("set"))}}; }

 private:
  static constexpr double kTolerance = 0.03;  // rows are rounded to 8 bits on the way in

  [[nodiscard]] ggml_backend_dev_t device() const { return ggml_backend_get_device(backend_.get()); }

  /// Puts the weights into memory of this type, if MUL_MAT_ID takes them from there.
  bool place(ggml_backend_buffer_type_t buffer_type) {
    weight_context_ = make_context(8);
    ggml_context* context = weight_context_.get();
    for (Matrix* m : {&gate_, &up_, &down_}) m->tensor = ggml_new_tensor_3d(context, m->type, m->k, m->n, m->experts);
    weights_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type));
    if (!weights_) throw Refusal("no memory for the weights");
    bool taken = true;
    for (const Matrix* m : {&gate_, &down_}) {
      ggml_tensor* rows = ggml_new_tensor_3d(context, GGML_TYPE_F32, m->k, 1, 1);
      ggml_tensor* ids = ggml_new_tensor_2d(context, GGML_TYPE_I32, 1, 1);
      const bool rearranged = buffer_type == ggml_backend_cpu_buffer_type() || m->tensor->extra != nullptr;
      Context scratch = make_context(4);
      taken = taken && rearranged &&
              ggml_backend_dev_supports_op(device(), ggml_mul_mat_id(scratch.get(), m->tensor, rows, ids));
    }
    if (!taken) weights_.reset();
    return taken;
  }

  void drop_graph() {
    graph_ = nullptr;
    graph_memory_.reset();
    graph_context_.reset();
    sets_.clear();
  }

  /// Like the layer of the benchmark: both products and the activation, and no weighted sum.
  void build(std::int64_t tokens, std::int64_t top_k) {
    drop_graph();
    tokens_ = tokens;
    top_k_ = top_k;
    graph_context_ = make_context(16);
    ggml_context* context = graph_context_.get();
    x_ = ggml_new_tensor_3d(context, GGML_TYPE_F32, hidden_, 1, tokens);
    ids_ = ggml_new_tensor_2d(context, GGML_TYPE_I32, top_k, tokens);
    for (ggml_tensor* input : {x_, ids_}) {
      ggml_set_input(input);
      ggml_set_output(input);  // else its memory is used again once it was read
    }
    ggml_tensor* up = ggml_mul_mat_id(context, up_.tensor, x_, ids_);
    ggml_tensor* gate = ggml_mul_mat_id(context, gate_.tensor, x_, ids_);
    y_ = ggml_mul_mat_id(context, down_.tensor, ggml_swiglu_split(context, gate, up), ids_);
    ggml_set_output(y_);
    graph_ = ggml_new_graph(context);
    ggml_build_forward_expand(graph_, y_);
    graph_memory_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (!ggml_gallocr_alloc_graph(graph_memory_.get(), graph_)) throw std::runtime_error("no memory for the graph");
    std::vector<float> x(static_cast<std::size_t>(hidden_ * tokens));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sqrt(3.0F) * noise(77, i);
    ggml_backend_tensor_set(x_, x.data(), 0, ggml_nbytes(x_));
  }

  double compute(std::size_t set) {
    const auto& ids = sets_.at(set);
    if (ids.size() * sizeof(std::int32_t) != ggml_nbytes(ids_)) throw std::runtime_error("ids: not tokens x top_k");
    ggml_backend_tensor_set(ids_, ids.data(), 0, ggml_nbytes(ids_));
    const auto start = std::chrono::steady_clock::now();
    if (ggml_backend_graph_compute(backend_.get(), graph_) != GGML_STATUS_SUCCESS)
      throw std::runtime_error("graph compute failed");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// Of the first and the last (row, expert) pair.
  [[nodiscard]] double worst_error(const std::vector<std::int32_t>& ids) const {
    double worst = 0.0;
    for (const std::size_t entry : std::set<std::size_t>{0, ids.size() - 1}) {
      std::vector<float> in(static_cast<std::size_t>(hidden_)), out(in.size());
      const std::size_t row_bytes = in.size() * sizeof(float);
      ggml_backend_tensor_get(x_, in.data(), entry / static_cast<std::size_t>(top_k_) * row_bytes, row_bytes);
      ggml_backend_tensor_get(y_, out.data(), entry * row_bytes, row_bytes);
      const std::vector<double> x(in.begin(), in.end());
      auto middle = gate_.times(ids[entry], x);
      const auto up = up_.times(ids[entry], x);
      for (std::size_t i = 0; i < middle.size(); ++i) middle[i] *= up[i] / (1.0 + std::exp(-middle[i]));
      const auto wanted = down_.times(ids[entry], middle);
      double error = 0.0, norm = 0.0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        error += (static_cast<double>(out[i]) - wanted[i]) * (static_cast<double>(out[i]) - wanted[i]);
        norm += wanted[i] * wanted[i];
      }
      const double relative = std::sqrt(error / norm);
      if (!(relative <= worst)) worst = relative;
    }
    return worst;
  }

  std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend_{ggml_backend_cpu_init(), ggml_backend_free};
  std::vector<ggml_backend_buffer_type_t> buffer_types_;
  std::int64_t hidden_ = 0, intermediate_ = 0, experts_ = 0, tokens_ = 0, top_k_ = 0;
  Matrix gate_{}, up_{}, down_{};
  Context weight_context_{nullptr, ggml_free};
  Buffer weights_{nullptr, ggml_backend_buffer_free};
  Context graph_context_{nullptr, ggml_free};
  std::unique_ptr<ggml_gallocr, decltype(&ggml_gallocr_free)> graph_memory_{nullptr, ggml_gallocr_free};
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor *x_ = nullptr, *ids_ = nullptr, *y_ = nullptr;
  std::vector<std::vector<std::int32_t>> sets_;
};

}  // namespace

int main() {
  ggml_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  try {
    Peer peer;
    for (std::string line; std::getline(std::cin, line);) {
      json answer;
      try {
        const json ask = json::parse(line);
        const std::string what = ask.at("ask");
        if (what != "layer" && what != "batch" && what != "run") throw std::runtime_error("unknown question " + what);
        answer = what == "layer" ? peer.layer(ask) : what == "batch" ? peer.batch(ask) : peer.run(ask);
      } catch (const Refusal& refusal) {
        answer = {{"refused", refusal.what()}};
      }
      std::cout << answer.dump() << std::endl;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ggml_driver: %s\n", error.what());
    return 1;
  }
  return 0;
}
