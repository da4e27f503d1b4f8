#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "epmoe/core/error.hpp"
#include "experts/backends.hpp"
#include "experts/batch_rows.hpp"
#include "experts/kernels/kernel_set.hpp"
#include "experts/native/gather.hpp"
#include "experts/native/tiles.hpp"

namespace epmoe {
namespace {

using kernels::kPanelColumns;
using native::GemmRows;
using native::Tile;

constexpr std::int64_t kRowBlock = 96;  // rows whose f32 results a worker holds at once; 16 row tiles of 6
constexpr std::int64_t kInt8MaxK = 2147483647 / (255 * 127);  // an int32 sum of so many products cannot overflow
/// Rows this far apart share the sets of a first cache; a tile's rows must not.
constexpr std::int64_t kAliasBytes = 2048;

std::int64_t row_stride(std::int64_t bytes) {
  return bytes % kAliasBytes == 0 ? bytes + kCacheLineBytes : bytes;
}

/// How one chunk lies in the workspaces. apply() and workspace_shapes() both read this. Workspace 13 holds the rows of
/// the first GEMM, then those of the second, each with their scales and the pointers to them; workspace 2 the
/// activations, and before them f32 rows on their way to int8.
struct Layout {
  std::int64_t input_stride = 0;          // bytes; converted rows, workspace13
  std::int64_t activation_stride = 0;     // bytes; workspace2
  std::int64_t requantized_stride = 0;    // bytes; int8 rows into the second GEMM, workspace13
  std::int64_t scratch_stride = 0;        // floats; workspace2
  std::int64_t pointers = 0, scales = 0;  // offsets in workspace13
  WorkspaceShapes shapes;

  Layout(const PackedLayout& packed, std::int64_t rows, std::int64_t entries) {
    const bool int8 = packed.compute == ComputeType::int8;
    const std::int64_t element = packed.element_bytes();
    input_stride = row_stride(native::row_bytes(packed, packed.hidden));
    activation_stride = row_stride(packed.padded_n(packed.intermediate) * (int8 ? 4 : element));
    std::int64_t bytes13 = rows * input_stride;
    std::int64_t bytes2 = entries * activation_stride;
    if (int8) {
      requantized_stride = row_stride(native::row_bytes(packed, packed.intermediate));
      bytes13 = std::max(bytes13, entries * requantized_stride);
      scratch_stride = packed.padded_k(packed.hidden);
      bytes2 = std::max(bytes2, ceil_div(rows, native::kRowsPerTask) * scratch_stride * 4);
    }
    pointers = round_up(bytes13, kCacheLineBytes);
    scales = pointers + entries * static_cast<std::int64_t>(sizeof(void*));
    bytes13 = scales + (int8 ? entries * 4 : 0);
    shapes = {round_up(bytes13, kCacheLineBytes), round_up(bytes2, kCacheLineBytes)};
  }
};

kernels::NarrowValues narrow_values_of(WeightValues values) {
  switch (values) {
    case WeightValues::f16: return kernels::NarrowValues::f16;
    case WeightValues::fp8_e4m3: return kernels::NarrowValues::fp8_e4m3;
    case WeightValues::int4: return kernels::NarrowValues::int4;
    case WeightValues::mxfp4: return kernels::NarrowValues::mxfp4;
    case WeightValues::as_compute: break;
  }
  throw ConfigError("experts: weights in the compute type are not decoded");
}

/// One of a slot's three matrices, panel by panel.
struct Panels {
  const std::byte* matrix;
  std::int64_t panel_bytes;
  std::int64_t words;  // of K
  const float* scales;
  const std::int32_t* column_sums;
  const float* biases;
  GemmRows rows;
  void (*narrow)(const kernels::DecodedGemm&) = nullptr;  // narrow weights: instead of `gemm`
  std::int64_t scale_bytes = 0;
  kernels::DecodedGemm decoded{};  // of panel 0, without rows

  void run_narrow(std::int64_t panel, std::int64_t row, std::int64_t count, const std::byte* next, float* c) const {
    kernels::DecodedGemm g = decoded;
    const std::int64_t column = panel * kPanelColumns;
    g.a = rows.rows + row;
    if (rows.scales != nullptr) g.row_scale = rows.scales + row;
    g.w = at(panel);
    g.next = next;
    if (g.scales != nullptr) g.scales = static_cast<const std::byte*>(g.scales) + column * g.groups * scale_bytes;
    if (g.zero_points != nullptr) g.zero_points += column * g.groups;
    g.c = c;
    g.c_stride = kPanelColumns;
    g.rows = count;
    if (biases != nullptr) g.bias = biases + column;
    narrow(g);
  }

  [[nodiscard]] const std::byte* at(std::int64_t panel) const { return matrix + panel * panel_bytes; }
  /// `next`: the panel whose weights the same worker wants after this one, or null.
  void run(void (*gemm)(const kernels::PanelGemm&), std::int64_t panel, std::int64_t row, std::int64_t count,
           const std::byte* next, float* c) const {
    if (narrow != nullptr) return run_narrow(panel, row, count, next, c);
    kernels::PanelGemm g;
    g.a = rows.rows + row;
    g.w = matrix + panel * panel_bytes;
    g.next = next;
    g.c = c;
    g.c_stride = kPanelColumns;
    g.rows = count;
    g.words = words;
    const std::int64_t column = panel * kPanelColumns;
    if (scales != nullptr) {
      g.row_scale = rows.scales + row;
      g.channel_scale = scales + column;
      g.column_sum = column_sums + column;
    }
    if (biases != nullptr) g.bias = biases + column;
    gemm(g);
  }
};

class NativeExperts final : public Experts {
 public:
  NativeExperts(const ExpertsConfig& config, const kernels::KernelSet& kernels)
      : config_(config), packed_(experts::packed_layout_of(config)), kernels_(kernels) {
    const kernels::KernelFunctions& f = *kernels.functions;
    if (packed_.compute == ComputeType::bf16 && !packed_.weights.narrow()) packed_.word_bytes = f.bf16_word_bytes;
    if (packed_.compute == ComputeType::int8 && !packed_.weights.narrow()) packed_.word_bytes = f.int8_word_bytes;
    if (f.unsigned_int8_rows && !packed_.weights.narrow()) flip_ = 0x80;
    gemm_ = packed_.compute == ComputeType::f32    ? f.gemm_f32
            : packed_.compute == ComputeType::bf16 ? f.gemm_bf16
                                                   : f.gemm_int8;
  }
  [[nodiscard]] std::string_view name() const override { return "native"; }
  [[nodiscard]] std::string_view isa() const override { return kernels_.name; }
  [[nodiscard]] const ExpertsConfig& config() const override { return config_; }
  [[nodiscard]] PackedLayout packed_layout() const override { return packed_; }
  [[nodiscard]] WorkspaceShapes workspace_shapes(std::int64_t rows, std::int64_t entries) const override {
    return Layout(packed_, rows, entries).shapes;
  }

  void apply(const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots, std::byte* workspace13,
             std::byte* workspace2, MatrixView output, const ExecutionContext& context) const override {
    experts::check_apply(*this, batch, index, slots, output);
    if (index.entries == 0) return;
    const Layout layout(packed_, index.rows, index.entries);
    const bool int8 = packed_.compute == ComputeType::int8;
    const RowConversion conversion{config_, *kernels_.functions, flip_};
    const GemmRows rows{reinterpret_cast<const void**>(workspace13 + layout.pointers),
                        int8 ? reinterpret_cast<float*>(workspace13 + layout.scales) : nullptr};

    native::gather(conversion, batch, index,
                   {workspace13, layout.input_stride, native::row_bytes(packed_, packed_.hidden)},
                   {reinterpret_cast<float*>(workspace2), layout.scratch_stride}, rows, context);
    gate_up(index, slots, rows, workspace2, layout, context);
    if (int8)  // the scale of a row needs all of the row
      native::quantize_rows(conversion, reinterpret_cast<const float*>(workspace2), layout.activation_stride / 4,
                            packed_.intermediate, index.entries, {workspace13, layout.requantized_stride}, rows,
                            context);
    else
      native::point_at_rows(workspace2, layout.activation_stride, index.entries, rows);
    down(index, slots, rows, output, context);
  }

 private:
  [[nodiscard]] Panels panels(const ExpertSlots& slots, std::int64_t expert, int part, const GemmRows& rows) const {
    const std::byte* slot = slots.slot(expert);
    const std::int64_t k = packed_.padded_k(part == 2 ? packed_.intermediate : packed_.hidden);
    const std::int64_t column = packed_.first_column(part);
    Panels p{};
    p.matrix = slot + (part == 0 ? packed_.gate_offset() : part == 1 ? packed_.up_offset() : packed_.down_offset());
    p.words = k / packed_.v();
    p.panel_bytes = p.words * kPanelColumns * packed_.word_bytes;
    if (packed_.compute == ComputeType::int8 && !packed_.weights.narrow()) {
      p.scales = reinterpret_cast<const float*>(slot + packed_.scale_offset()) + column;
      p.column_sums = reinterpret_cast<const std::int32_t*>(slot + packed_.column_sum_offset()) + column;
    }
    if (packed_.weights.narrow()) {
      p.panel_bytes = k * kPanelColumns * packed_.weight_bits() / 8;
      p.narrow = kernels_.functions->gemm_decoded;
      p.decoded.values = narrow_values_of(packed_.weights.values);
      p.decoded.k = k;
      p.scale_bytes = packed_.scale_bytes();
      p.decoded.groups = packed_.groups(part == 2 ? packed_.intermediate : packed_.hidden);
      p.decoded.group = packed_.weights.block_cols == 0 ? k : packed_.weights.block_cols;
      if (packed_.weights.scaled()) p.decoded.scales = slot + packed_.narrow_scale_offset(part);
      if (packed_.weights.zero_point)
        p.decoded.zero_points = reinterpret_cast<const std::uint8_t*>(slot + packed_.zero_point_offset(part));
    }
    if (packed_.biases) p.biases = reinterpret_cast<const float*>(slot + packed_.bias_offset()) + column;
    p.rows = rows;
    return p;
  }

  /// Where a worker goes on after some rows of a panel: another panel, or nowhere that is known.
  struct Following {
    std::int64_t expert = -1;
    std::int64_t panel = 0;
  };

  /// Runs `block(tile, panel, row, count, following)` over all tiles. Each worker takes a tile while it still works on
  /// the one before, so that it knows which weights to fetch ahead. The calling thread also lets communication
  /// progress inside a tile, since one panel of a large expert can take long.
  template <class Block>
  void run_tiles(const std::vector<Tile>& tiles, const ExecutionContext& context, Block&& block) const {
    const auto count = static_cast<std::int64_t>(tiles.size());
    std::atomic<std::int64_t> taken{0};
    const auto body = [&](std::int64_t, int worker) {
      std::int64_t next = taken.fetch_add(1, std::memory_order_relaxed);
      while (next < count) {
        const Tile& tile = tiles[static_cast<std::size_t>(next)];
        next = taken.fetch_add(1, std::memory_order_relaxed);
        Following after;
        if (next < count) {
          const Tile& later = tiles[static_cast<std::size_t>(next)];
          after = {later.expert, later.panel_begin};
        }
        for (std::int64_t panel = tile.panel_begin; panel < tile.panel_end; ++panel)
          for (std::int64_t row = tile.row_begin; row < tile.row_end; row += kRowBlock) {
            if (worker == 0 && context.progress != nullptr) context.progress->progress();
            Following following;  // the same panel again: it is in cache already
            if (row + kRowBlock >= tile.row_end)
              following = panel + 1 < tile.panel_end ? Following{tile.expert, panel + 1} : after;
            block(tile, panel, row, std::min(kRowBlock, tile.row_end - row), following);
          }
      }
    };
    context.executor->run(std::min<std::int64_t>(context.executor->workers(), count), body, context.progress);
  }

  void gate_up(const ExpertIndex& index, const ExpertSlots& slots, const GemmRows& input, std::byte* activation,
               const Layout& layout, const ExecutionContext& context) const {
    const PhaseTimer timer(context, Phase::gemm1);
    const std::int64_t values = packed_.first_matrices() * packed_.padded_k(packed_.hidden) * kPanelColumns;
    const auto tiles = native::cut_tiles(index, packed_.padded_n(packed_.intermediate) / kPanelColumns,
                                         values * packed_.element_bytes(), values, context.executor->workers());
    const bool bf16_out = packed_.compute == ComputeType::bf16;
    const std::int64_t element = bf16_out ? 2 : 4;
    run_tiles(
        tiles, context,
        [&](const Tile& tile, std::int64_t panel, std::int64_t row, std::int64_t count, const Following& following) {
          alignas(64) float gate[kRowBlock * kPanelColumns];
          alignas(64) float up[kRowBlock * kPanelColumns];
          const Panels gates = panels(slots, tile.expert, 0, input), ups = panels(slots, tile.expert, 1, input);
          const std::byte* after =
              following.expert < 0 ? nullptr : panels(slots, following.expert, 0, input).at(following.panel);
          gates.run(gemm_, panel, row, count, packed_.gated ? ups.at(panel) : after, gate);
          if (packed_.gated) ups.run(gemm_, panel, row, count, after, up);
          const std::int64_t column = panel * kPanelColumns;
          std::byte* out = activation + row * layout.activation_stride + column * element;
          kernels::PanelActivation act;
          act.kind = kind_of(config_.shape.activation);
          act.gate = gate;
          act.up = up;
          act.stride = kPanelColumns;
          act.rows = count;
          act.out = out;
          act.out_stride_bytes = layout.activation_stride;
          act.out_bf16 = bf16_out;
          kernels_.functions->activate(act);
          // Columns past I: a NaN row would leave NaN there, and NaN times a padding weight is not 0.
          const std::int64_t used = std::min(kPanelColumns, packed_.intermediate - column);
          for (std::int64_t r = 0; used < kPanelColumns && r < count; ++r)
            std::memset(out + r * layout.activation_stride + used * element, 0,
                        static_cast<std::size_t>((kPanelColumns - used) * element));
        });
  }

  void down(const ExpertIndex& index, const ExpertSlots& slots, const GemmRows& middle, const MatrixView& output,
            const ExecutionContext& context) const {
    const PhaseTimer timer(context, Phase::gemm2);
    const std::int64_t k = packed_.padded_k(packed_.intermediate);
    const auto tiles =
        native::cut_tiles(index, packed_.padded_n(packed_.hidden) / kPanelColumns,
                          k * kPanelColumns * packed_.element_bytes(), k * kPanelColumns, context.executor->workers());
    run_tiles(
        tiles, context,
        [&](const Tile& tile, std::int64_t panel, std::int64_t row, std::int64_t count, const Following& following) {
          alignas(64) float c[kRowBlock * kPanelColumns];
          panels(slots, tile.expert, 2, middle)
              .run(gemm_, panel, row, count,
                   following.expert < 0 ? nullptr : panels(slots, following.expert, 2, middle).at(following.panel), c);
          const std::int64_t column = panel * kPanelColumns;
          const auto used = static_cast<std::size_t>(std::min(kPanelColumns, packed_.hidden - column)) * 4;
          for (std::int64_t r = 0; r < count; ++r)
            std::memcpy(output.row(index.entry[static_cast<std::size_t>(row + r)]) + column * 4, c + r * kPanelColumns,
                        used);
        });
  }

  ExpertsConfig config_;
  PackedLayout packed_;
  const kernels::KernelSet& kernels_;
  std::uint8_t flip_ = 0;  // what makes an int8 value of a row the kernels' one
  void (*gemm_)(const kernels::PanelGemm&) = nullptr;
};

Verdict supports(const ExpertsConfig& config) {
  if (Verdict verdict = experts::supports_quantisation(config); !verdict) return verdict;
  const std::int64_t k = std::max(config.shape.hidden, config.shape.intermediate);
  if (config.quant.compute == ComputeType::int8 && k > kInt8MaxK)
    return Verdict::no(fmt::format("int8: sums over {} products can overflow 32 bits, the most is {}", k, kInt8MaxK));
  if (kernels::find_kernel_set(config.isa.c_str()) != nullptr) return Verdict::yes();
  std::string known;
  for (std::int64_t i = 0; i < kernels::kernel_table().count; ++i) {
    const kernels::KernelSet& set = kernels::kernel_table().sets[i];
    if (config.isa == set.name) return Verdict::no(fmt::format("this CPU cannot run the {} kernels", set.name));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", set.name);
  }
  return Verdict::no(fmt::format("no kernels named '{}', known: {}", config.isa, known));
}

}  // namespace

BackendInfo native_backend() {
  return {"native", "own kernels, vectorised for this CPU; the same bits for any batch, chunks and threads", supports,
          [](const ExpertsConfig& config) -> std::unique_ptr<Experts> {
            if (const Verdict verdict = supports(config); !verdict)
              throw ConfigError(fmt::format("experts back end native: {}", verdict.reason));
            return std::make_unique<NativeExperts>(config, *kernels::find_kernel_set(config.isa.c_str()));
          }};
}

}  // namespace epmoe
