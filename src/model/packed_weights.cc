#include "model/packed_weights.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <vector>

#include "kernels/weight_rows.h"
#include "model/compute.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kAlignment = 64;

// Memory that grows and never shrinks, aligned for the widest vectors.
class AlignedBytes {
 public:
  std::byte* ensure(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();  // first, so that the two never exist together
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
      size_ = bytes;
    }
    return memory_.get();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Deleter {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Deleter> memory_;
  std::size_t size_ = 0;
};

constexpr std::size_t round_up(std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

dnnl::memory::data_type data_type(PackedType type) {
  return type == PackedType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::size_t type_size(PackedType type) { return type == PackedType::kBF16 ? 2 : 4; }

// Everything that depends on a matrix's shape only; shared by the layers.
struct MatrixShape {
  std::int64_t n_in;
  std::int64_t n_out;
  PackedType type;
  dnnl::memory::desc plain;   // [n_in][n_out] as the file has it: n_in contiguous
  dnnl::memory::desc packed;  // as the product wants it
  dnnl::reorder reorder;
  std::map<std::int64_t, dnnl::matmul> products;  // by number of rows
};

// oneDNN plans and runs with OpenMP's number of threads. Every thread of the team multiplies its own share, so while we
// call oneDNN that number is 1 for the calling thread; what the host program had set comes back.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad belongs to the primitive: two threads could not run it at once.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::matmul::primitive_desc product_description(const dnnl::engine& engine, const MatrixShape& shape,
                                                 std::int64_t n_rows, const dnnl::memory::desc& weights) {
  using dnnl::memory;
  const memory::desc src({n_rows, shape.n_in}, data_type(shape.type), memory::format_tag::ab);
  const memory::desc dst({n_rows, shape.n_out}, memory::data_type::f32, memory::format_tag::ab);
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(src, weights, dst), user_scratchpad(), engine);
}

}  // namespace

struct PackedMatrix {
  PackedLayer::Impl* layer = nullptr;
  const ggml_tensor* weight = nullptr;
  MatrixShape* shape = nullptr;
  std::size_t offset = 0;        // bytes into Impl::packed
  std::size_t plain_offset = 0;  // bytes into Impl::plain
};

struct PackedLayer::Impl {
  std::optional<PackedType> type;  // of all matrices
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<std::tuple<std::int64_t, std::int64_t, PackedType>, MatrixShape> shapes;
  std::vector<PackedMatrix> matrices;
  AlignedBytes packed;  // all matrices of the layer
  AlignedBytes plain;   // the same before packing
  Compute* compute = nullptr;
  std::size_t scratchpad_bytes = 0;
  struct ThreadScratch {
    AlignedBytes rows;        // the thread's share of x, converted
    AlignedBytes scratchpad;  // oneDNN's
    AlignedBytes floats;      // one dequantised row
  };
  std::vector<ThreadScratch> scratch;

  MatrixShape& shape_of(const ggml_tensor* weight, int typical_rows);
  void add_product(MatrixShape& shape, std::int64_t n_rows);
};

namespace {

// Rows of thread `ith`: [first, last).
std::pair<std::int64_t, std::int64_t> share_of_rows(std::int64_t n_rows, int ith, int nth) {
  const std::int64_t share = (n_rows + nth - 1) / nth;
  const std::int64_t first = std::min<std::int64_t>(n_rows, share * ith);
  return {first, std::min<std::int64_t>(n_rows, first + share)};
}

void run_product(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& matrix = *static_cast<const PackedMatrix*>(userdata);
  PackedLayer::Impl& layer = *matrix.layer;
  const OneThread one_thread;
  try {
    const MatrixShape& shape = *matrix.shape;
    const auto [first, last] = share_of_rows(dst->ne[1], ith, nth);
    const std::int64_t n_rows = last - first;
    if (n_rows == 0) return;
    const ggml_tensor* x = dst->src[0];
    const float* src = static_cast<const float*>(x->data) + first * shape.n_in;
    auto& scratch = layer.scratch[static_cast<std::size_t>(ith)];
    void* rows = const_cast<float*>(src);
    if (shape.type == PackedType::kBF16) {
      rows = scratch.rows.data();
      ggml_cpu_fp32_to_bf16(src, static_cast<ggml_bf16_t*>(rows), n_rows * shape.n_in);
    }
    const auto product = shape.products.find(n_rows);
    if (product == shape.products.end()) {
      throw Error(ErrorCode::kInternal, "a product over " + std::to_string(n_rows) + " rows was not prepared");
    }
    using dnnl::memory;
    const dnnl::engine& engine = layer.engine;
    dnnl::stream stream(engine);
    const memory src_memory({{n_rows, shape.n_in}, data_type(shape.type), memory::format_tag::ab}, engine, rows);
    const memory weight_memory(shape.packed, engine, layer.packed.data() + matrix.offset);
    const memory dst_memory({{n_rows, shape.n_out}, memory::data_type::f32, memory::format_tag::ab}, engine,
                            static_cast<float*>(dst->data) + first * shape.n_out);
    const memory scratchpad(
        {{static_cast<std::int64_t>(layer.scratchpad_bytes)}, memory::data_type::u8, memory::format_tag::a}, engine,
        scratch.scratchpad.data());
    product->second.execute(stream, {{DNNL_ARG_SRC, src_memory},
                                     {DNNL_ARG_WEIGHTS, weight_memory},
                                     {DNNL_ARG_DST, dst_memory},
                                     {DNNL_ARG_SCRATCHPAD, scratchpad}});
  } catch (...) {
    layer.compute->fail(std::current_exception());
  }
}

}  // namespace

bool multiplies_bf16() { return ggml_cpu_has_avx512_bf16() != 0; }

PackedType packed_type_for(const ggml_tensor* weight) {
  return multiplies_bf16() && weight->type != GGML_TYPE_F32 ? PackedType::kBF16 : PackedType::kF32;
}

MatrixShape& PackedLayer::Impl::shape_of(const ggml_tensor* weight, int typical_rows) {
  const std::tuple key{weight->ne[0], weight->ne[1], type.value_or(packed_type_for(weight))};
  if (const auto found = shapes.find(key); found != shapes.end()) return found->second;
  using dnnl::memory;
  const OneThread one_thread;
  MatrixShape shape{};
  std::tie(shape.n_in, shape.n_out, shape.type) = key;
  shape.plain = memory::desc({shape.n_in, shape.n_out}, data_type(shape.type), memory::format_tag::ba);
  const memory::desc any({shape.n_in, shape.n_out}, data_type(shape.type), memory::format_tag::any);
  shape.packed = product_description(engine, shape, typical_rows, any).weights_desc();
  shape.reorder = dnnl::reorder(dnnl::reorder::primitive_desc(engine, shape.plain, engine, shape.packed));
  return shapes.emplace(key, std::move(shape)).first->second;
}

void PackedLayer::Impl::add_product(MatrixShape& shape, std::int64_t n_rows) {
  if (shape.products.contains(n_rows)) return;
  const OneThread one_thread;
  const auto description = product_description(engine, shape, n_rows, shape.packed);
  scratchpad_bytes = std::max(scratchpad_bytes, description.scratchpad_desc().get_size());
  shape.products.emplace(n_rows, dnnl::matmul(description));
}

PackedLayer::PackedLayer(std::optional<PackedType> type) : impl_(std::make_unique<Impl>()) { impl_->type = type; }
PackedLayer::~PackedLayer() = default;

void PackedLayer::pack(std::span<ggml_tensor* const> weights, int max_rows, Compute& compute) {
  Impl& impl = *impl_;
  const int n_threads = compute.n_threads();
  impl.compute = &compute;
  impl.scratch.resize(static_cast<std::size_t>(n_threads));
  impl.matrices.clear();
  const std::int64_t share = (max_rows + n_threads - 1) / n_threads;
  std::size_t packed_bytes = 0;
  std::size_t plain_bytes = 0;
  std::int64_t max_in = 0;
  for (const ggml_tensor* weight : weights) {
    MatrixShape& shape = impl.shape_of(weight, static_cast<int>(share));
    impl.matrices.push_back(
        {.layer = &impl, .weight = weight, .shape = &shape, .offset = packed_bytes, .plain_offset = plain_bytes});
    packed_bytes += round_up(shape.packed.get_size());
    plain_bytes += round_up(shape.plain.get_size());
    max_in = std::max(max_in, shape.n_in);
  }
  impl.packed.ensure(packed_bytes);
  impl.plain.ensure(plain_bytes);
  for (auto& scratch : impl.scratch) {
    scratch.rows.ensure(static_cast<std::size_t>(share * max_in) * 2);
    scratch.floats.ensure(static_cast<std::size_t>(max_in) * sizeof(float));
  }

  // Dequantise in blocks of rows, then pack matrix by matrix.
  constexpr std::int64_t kBlockRows = 64;
  struct Block {
    const PackedMatrix* matrix;
    std::int64_t first_row;
  };
  std::vector<Block> blocks;
  for (const PackedMatrix& matrix : impl.matrices) {
    for (std::int64_t row = 0; row < matrix.shape->n_out; row += kBlockRows) blocks.push_back({&matrix, row});
  }
  compute.parallel_for(static_cast<int>(blocks.size()), [&](int i) {
    const Block& block = blocks[static_cast<std::size_t>(i)];
    const MatrixShape& shape = *block.matrix->shape;
    const ggml_tensor* weight = block.matrix->weight;
    const bool to_bf16 = shape.type == PackedType::kBF16;
    const auto known = to_bf16 ? kernels::weight_blocks(ggml_type_name(weight->type)) : std::nullopt;
    std::vector<float> row_floats(known ? 0 : static_cast<std::size_t>(shape.n_in));
    const auto to_float = ggml_get_type_traits(weight->type)->to_float;
    for (std::int64_t row = block.first_row; row < std::min(shape.n_out, block.first_row + kBlockRows); ++row) {
      const std::byte* src =
          static_cast<const std::byte*>(weight->data) + static_cast<std::size_t>(row) * weight->nb[1];
      std::byte* dst = impl.plain.data() + block.matrix->plain_offset +
                       static_cast<std::size_t>(row * shape.n_in) * type_size(shape.type);
      if (known) {
        kernels::weight_row_to_bf16(*known, src, reinterpret_cast<std::uint16_t*>(dst), shape.n_in);
        continue;
      }
      const float* floats = row_floats.data();
      if (weight->type == GGML_TYPE_F32) {
        floats = reinterpret_cast<const float*>(src);
      } else {
        to_float(src, row_floats.data(), shape.n_in);
      }
      if (to_bf16) {
        ggml_cpu_fp32_to_bf16(floats, reinterpret_cast<ggml_bf16_t*>(dst), shape.n_in);
      } else {
        std::copy_n(floats, shape.n_in, reinterpret_cast<float*>(dst));
      }
    }
  });
  compute.parallel_for(static_cast<int>(impl.matrices.size()), [&](int i) {
    const PackedMatrix& matrix = impl.matrices[static_cast<std::size_t>(i)];
    const dnnl::memory plain(matrix.shape->plain, impl.engine, impl.plain.data() + matrix.plain_offset);
    const dnnl::memory packed(matrix.shape->packed, impl.engine, impl.packed.data() + matrix.offset);
    dnnl::stream stream(impl.engine);
    const OneThread one_thread;
    matrix.shape->reorder.execute(stream, {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, packed}});
  });
}

void PackedLayer::prepare(int n_rows) {
  Impl& impl = *impl_;
  const int n_threads = impl.compute->n_threads();
  for (const PackedMatrix& matrix : impl.matrices) {
    // Prompts of many different lengths would fill this without end. Not while adding: all of one length's are needed.
    if (matrix.shape->products.size() > 64) matrix.shape->products.clear();
  }
  for (const PackedMatrix& matrix : impl.matrices) {
    for (int ith = 0; ith < n_threads; ++ith) {
      const auto [first, last] = share_of_rows(n_rows, ith, n_threads);
      if (last > first) impl.add_product(*matrix.shape, last - first);
    }
  }
  for (auto& scratch : impl.scratch) scratch.scratchpad.ensure(std::max<std::size_t>(impl.scratchpad_bytes, 1));
}

const PackedMatrix* PackedLayer::find(const ggml_tensor* weight) const {
  for (const PackedMatrix& matrix : impl_->matrices) {
    if (matrix.weight == weight) return &matrix;
  }
  return nullptr;
}

ggml_tensor* packed_product(ggml_context* context, const PackedMatrix& matrix, ggml_tensor* x) {
  ggml_tensor* args[1] = {x};
  return ggml_custom_4d(context, GGML_TYPE_F32, matrix.shape->n_out, x->ne[1], 1, 1, args, 1, run_product,
                        GGML_N_TASKS_MAX, const_cast<PackedMatrix*>(&matrix));
}

}  // namespace winnow
