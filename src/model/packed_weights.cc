#include "model/packed_weights.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/one_openmp_thread.h"
#include "base/round_up.h"
#include "kernels/products/weight_rows.h"
#include "model/compute.h"
#include "model/interleaved_weights.h"
#include "model/weights.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kPackedAlignment = 64;

// Memory that grows and never shrinks, aligned for the widest vectors.
class AlignedBytes {
 public:
  std::byte* ensure(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();  // first, so that the two never exist together
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kPackedAlignment})));
      size_ = bytes;
    }
    return memory_.get();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Deleter {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kPackedAlignment}); }
  };
  std::unique_ptr<std::byte, Deleter> memory_;
  std::size_t size_ = 0;
};

dnnl::memory::data_type data_type(PackedType type) {
  return type == PackedType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::size_t type_size(PackedType type) { return type == PackedType::kBF16 ? 2 : 4; }

// The data that depend on a matrix's shape only. The layers share them.
struct MatrixShape {
  std::int64_t n_in;
  std::int64_t n_out;
  PackedType type;
  dnnl::memory::desc packed;  // [n_in][n_out] in the layout that the product reads
  // A matrix is packed in blocks of so many outputs, which a core's cache holds, or in one block if the packed form
  // cannot be cut there.
  std::int64_t block_outputs;
  struct Packing {
    dnnl::memory::desc target;  // the block that the primitive was made for; others begin elsewhere
    dnnl::reorder reorder;
  };
  std::map<std::int64_t, Packing> packing;        // by number of outputs: a whole block's, the last one's
  std::map<std::int64_t, dnnl::matmul> products;  // by number of rows
};

// Throws an Error if the operating system refuses memory for generated code. oneDNN generates code for every primitive
// and writes it without a check whether mmap has succeeded, which crashes in a limited address space. This asks first
// for more than a primitive was seen to take, executable as its pages will be.
void require_room_for_code() {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  constexpr std::size_t kPage = 4096;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const bool has_room = memory != MAP_FAILED;
  const bool may_execute = has_room && mprotect(memory, kPage, PROT_READ | PROT_EXEC) == 0;
  if (has_room) munmap(memory, kBytes);
  if (may_execute) return;
  throw Error(has_room ? ErrorCode::kUnsupported : ErrorCode::kOutOfMemory,
              std::string("the operating system refuses memory for the code that oneDNN generates") +
                  (has_room ? " (it forbids this process to make memory executable): "
                            : ": raise the limit of address space (ulimit -v), or ") +
                  "prefill with the weights as they are (--prefill-weights as-is), which needs none");
}

// Returns make(), and turns oneDNN's exceptions into errors of ours.
template <class Make>
auto with_room_for_code(const Make& make) {
  require_room_for_code();
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw Error(error.status == dnnl_out_of_memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal,
                std::string("oneDNN cannot multiply a prompt with these weights: ") + error.what() +
                    "; prefill with the weights as they are (--prefill-weights as-is)");
  }
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad belongs to the primitive, so two threads could not run it at once.
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
  std::size_t offset = 0;  // bytes into Impl::packed
};

struct PackedLayer::Impl {
  std::optional<PackedType> type;  // of all matrices
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<std::tuple<std::int64_t, std::int64_t, PackedType>, MatrixShape> shapes;
  std::vector<PackedMatrix> matrices;
  AlignedBytes packed;  // all matrices of the layer
  Compute* compute = nullptr;
  std::size_t scratchpad_bytes = 0;
  struct ThreadScratch {
    AlignedBytes rows;        // the thread's share of x, converted
    AlignedBytes scratchpad;  // oneDNN's
    AlignedBytes block;       // weights before packing: [block_outputs][n_in]
  };
  std::vector<ThreadScratch> scratch;

  MatrixShape& shape_of(const ggml_tensor* weight, int typical_rows);
  void add_packing(MatrixShape& shape);
  void pack_block(const PackedMatrix& matrix, std::int64_t first_output, std::byte* block) const;
  void add_product(MatrixShape& shape, std::int64_t n_rows);
};

namespace {

// Returns the rows of one share: [first, last).
std::pair<std::int64_t, std::int64_t> share_of_rows(std::int64_t n_rows, int share, int n_shares) {
  const std::int64_t size = (n_rows + n_shares - 1) / n_shares;
  const std::int64_t first = std::min<std::int64_t>(n_rows, size * share);
  return {first, std::min<std::int64_t>(n_rows, first + size)};
}

// Multiplies one share of the rows. prepare() has to know the number of rows.
void multiply_share(const PackedMatrix& matrix, ggml_tensor* dst, int share,
                    PackedLayer::Impl::ThreadScratch& scratch) {
  PackedLayer::Impl& layer = *matrix.layer;
  const MatrixShape& shape = *matrix.shape;
  const auto [first, last] = share_of_rows(dst->ne[1], share, layer.compute->n_threads());
  const std::int64_t n_rows = last - first;
  if (n_rows == 0) return;
  const float* src = static_cast<const float*>(dst->src[0]->data) + first * shape.n_in;
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
}

void run_product(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& matrix = *static_cast<const PackedMatrix*>(userdata);
  PackedLayer::Impl& layer = *matrix.layer;
  const OneOpenMpThread one_thread;
  layer.compute->guard([&] {
    auto& scratch = layer.scratch[static_cast<std::size_t>(ith)];
    for (int share = ith; share < layer.compute->n_threads(); share += nth) multiply_share(matrix, dst, share, scratch);
  });
}

}  // namespace

namespace {

// Returns whether oneDNN uses all of these instructions.
[[maybe_unused]] bool uses(dnnl_cpu_isa_t instructions) {
  const auto needed = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

// Returns false on x86-64 without these instructions: oneDNN then multiplies bf16 by way of float32, which takes longer
// than float32 itself.
bool has_bf16_instructions() {
#if defined(__x86_64__)
  return uses(dnnl_cpu_isa_avx512_core_bf16);
#else
  return true;  // multiplies_bf16() refuses the reference implementation
#endif
}

}  // namespace

bool multiplies_bf16() {
  static const bool does = [] {
    if (!has_bf16_instructions()) return false;
    try {
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      const MatrixShape shape{.n_in = 64, .n_out = 64, .type = PackedType::kBF16};
      const dnnl::memory::desc any({64, 64}, dnnl::memory::data_type::bf16, dnnl::memory::format_tag::any);
      return !std::string_view(product_description(engine, shape, 64, any).impl_info_str()).starts_with("ref");
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return does;
}

bool multiplies_bf16_by_tiles() {
#if defined(__x86_64__)
  return multiplies_bf16() && uses(dnnl_cpu_isa_avx512_core_amx);
#else
  return false;
#endif
}

PackedType packed_type_for(const ggml_tensor* weight) {
  return multiplies_bf16() && weight->type != GGML_TYPE_F32 ? PackedType::kBF16 : PackedType::kF32;
}

MatrixShape& PackedLayer::Impl::shape_of(const ggml_tensor* weight, int typical_rows) {
  const std::tuple key{weight->ne[0], weight->ne[1], type.value_or(packed_type_for(weight))};
  if (const auto found = shapes.find(key); found != shapes.end()) return found->second;
  using dnnl::memory;
  const OneOpenMpThread one_thread;
  MatrixShape shape{};
  std::tie(shape.n_in, shape.n_out, shape.type) = key;
  const memory::desc any({shape.n_in, shape.n_out}, data_type(shape.type), memory::format_tag::any);
  with_room_for_code([&] {
    shape.packed = product_description(engine, shape, typical_rows, any).weights_desc();
    add_packing(shape);
    return true;
  });
  return shapes.emplace(key, std::move(shape)).first->second;
}

// Returns the layout [n_in][n_outputs] of the file, in which n_in is contiguous.
dnnl::memory::desc plain_block(const MatrixShape& shape, std::int64_t n_outputs) {
  return {{shape.n_in, n_outputs}, data_type(shape.type), dnnl::memory::format_tag::ba};
}

// Returns the part of the packed matrix that holds these outputs.
dnnl::memory::desc packed_block(const MatrixShape& shape, std::int64_t first, std::int64_t n_outputs) {
  return shape.packed.submemory_desc({shape.n_in, n_outputs}, {0, first});
}

void PackedLayer::Impl::add_packing(MatrixShape& shape) {
  constexpr std::int64_t kBlockOutputs = 64;
  const auto add = [&](std::int64_t first, std::int64_t n) {
    const auto target = packed_block(shape, first, n);
    const dnnl::reorder::primitive_desc description(engine, plain_block(shape, n), engine, target);
    shape.packing.emplace(n, MatrixShape::Packing{target, dnnl::reorder(description)});
  };
  // Only the packing of a whole matrix fills its padding, which the product multiplies as well.
  const dnnl_memory_desc_t& packed_desc = shape.packed.data;
  const bool is_padded = !std::equal(packed_desc.dims, packed_desc.dims + 2, packed_desc.padded_dims);
  try {
    shape.block_outputs = is_padded ? shape.n_out : std::min(kBlockOutputs, shape.n_out);
    add(0, shape.block_outputs);
    const std::int64_t rest = shape.n_out % shape.block_outputs;
    if (rest > 0) add(shape.n_out - rest, rest);
  } catch (const dnnl::error&) {  // it cannot be cut there
    shape.packing.clear();
    shape.block_outputs = shape.n_out;
    add(0, shape.n_out);
  }
}

// Dequantises up to block_outputs outputs into `block` and packs them.
void PackedLayer::Impl::pack_block(const PackedMatrix& matrix, std::int64_t first_output, std::byte* block) const {
  const MatrixShape& shape = *matrix.shape;
  const ggml_tensor* weight = matrix.weight;
  const bool to_bf16 = shape.type == PackedType::kBF16;
  const auto blocks = kernels::weight_blocks(ggml_type_name(weight->type));
  const bool known = to_bf16 && blocks && kernels::converts_to_bf16(*blocks);
  const auto n_in = static_cast<std::size_t>(shape.n_in);
  const std::int64_t n_outputs = std::min(shape.block_outputs, shape.n_out - first_output);
  std::vector<float> floats(known ? 0 : n_in);
  std::vector<std::byte> together;
  for (std::int64_t i = 0; i < n_outputs; ++i) {
    std::byte* dst = block + static_cast<std::size_t>(i) * n_in * type_size(shape.type);
    if (known) {
      const std::byte* src = stored_row(weight, first_output + i, together);
      kernels::weight_row_to_bf16(*blocks, src, reinterpret_cast<std::uint16_t*>(dst), shape.n_in);
      continue;
    }
    float* row = to_bf16 ? floats.data() : reinterpret_cast<float*>(dst);
    dequantize_row(weight, first_output + i, row);
    if (to_bf16) ggml_cpu_fp32_to_bf16(row, reinterpret_cast<ggml_bf16_t*>(dst), shape.n_in);
  }

  const MatrixShape::Packing& packing = shape.packing.at(n_outputs);
  const auto begin = packed_block(shape, first_output, n_outputs).data.offset0 - packing.target.data.offset0;
  const dnnl::memory from(plain_block(shape, n_outputs), engine, block);
  const dnnl::memory to(packing.target, engine,
                        packed.data() + matrix.offset + static_cast<std::size_t>(begin) * type_size(shape.type));
  dnnl::stream stream(engine);
  const OneOpenMpThread one_thread;
  packing.reorder.execute(stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void PackedLayer::Impl::add_product(MatrixShape& shape, std::int64_t n_rows) {
  if (shape.products.contains(n_rows)) return;
  const OneOpenMpThread one_thread;
  with_room_for_code([&] {
    const auto description = product_description(engine, shape, n_rows, shape.packed);
    scratchpad_bytes = std::max(scratchpad_bytes, description.scratchpad_desc().get_size());
    return shape.products.emplace(n_rows, dnnl::matmul(description)).second;
  });
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
  std::size_t packed_bytes = 0, block_bytes = 0;
  std::int64_t max_in = 0;
  for (const ggml_tensor* weight : weights) {
    MatrixShape& shape = impl.shape_of(weight, static_cast<int>(share));
    impl.matrices.push_back({.layer = &impl, .weight = weight, .shape = &shape, .offset = packed_bytes});
    packed_bytes += round_up(shape.packed.get_size(), kPackedAlignment);
    block_bytes =
        std::max(block_bytes, static_cast<std::size_t>(shape.block_outputs * shape.n_in) * type_size(shape.type));
    max_in = std::max(max_in, shape.n_in);
  }
  impl.packed.ensure(packed_bytes);
  for (auto& scratch : impl.scratch) {
    scratch.rows.ensure(static_cast<std::size_t>(share * max_in) * 2);
    scratch.block.ensure(block_bytes);
  }

  struct Block {
    const PackedMatrix* matrix;
    std::int64_t first_output;
  };
  std::vector<Block> blocks;
  for (const PackedMatrix& matrix : impl.matrices) {
    for (std::int64_t first = 0; first < matrix.shape->n_out; first += matrix.shape->block_outputs) {
      blocks.push_back({&matrix, first});
    }
  }
  // Each thread takes one item, so that it has its own memory for a block.
  std::atomic<std::size_t> next{0};
  compute.parallel_for(n_threads, [&](int ith) {
    std::byte* memory = impl.scratch[static_cast<std::size_t>(ith)].block.data();
    for (std::size_t i = next++; i < blocks.size(); i = next++) {
      impl.pack_block(*blocks[i].matrix, blocks[i].first_output, memory);
    }
  });
}

void PackedLayer::prepare(int n_rows) {
  Impl& impl = *impl_;
  const int n_threads = impl.compute->n_threads();
  for (const PackedMatrix& matrix : impl.matrices) {
    // Prompts of many different lengths would fill this without end. It is not cleared while products are added, since
    // all of one length are needed.
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
