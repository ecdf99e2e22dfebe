#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "device/kernels/paged_heads.h"
#include "device/kernels/projected_norms-inl.h"
#include "kernels/reference/reference.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

// W_O in bfloat16 [n_embd][n_head * value_dim], and the same numbers as slices [n_head][value_dim][n_embd].
struct Projection {
  Projection(const LayerAttention& layer, int n_embd)
      : rows(static_cast<std::size_t>(layer.n_head * layer.value_dim * n_embd) / 2 + 4, 5) {
    const int n_in = layer.n_head * layer.value_dim;
    const AlignedRows numbers(static_cast<std::size_t>(n_in * n_embd), 9, .1F);
    slices.resize(static_cast<std::size_t>(n_in * n_embd));
    auto* to = reinterpret_cast<std::uint16_t*>(rows.data());
    for (int i = 0; i < n_in * n_embd; ++i) {
      to[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers.data()[i]) >> 16U);
      slices[static_cast<std::size_t>(i % n_in * n_embd + i / n_in)] =
          std::bit_cast<float>(static_cast<std::uint32_t>(to[i]) << 16U);
    }
  }
  AlignedRows rows;
  std::vector<float> slices;
};

void expect_reference(EntryType type, int dim, int n_group, int n_embd, const std::vector<PagedHead>& sizes) {
  SCOPED_TRACE(testing::Message() << entry_type_name(type) << " dim " << dim << " n_group " << n_group << " n_embd "
                                  << n_embd);
  const auto n_kv_head = static_cast<int>(sizes.size());
  const LayerAttention layer = {.n_head = n_kv_head * n_group,
                                .n_kv_head = n_kv_head,
                                .key_dim = 16,
                                .value_dim = dim,
                                .key_type = type,
                                .value_type = type,
                                .scale = 1.0F};
  const PagedHeads heads(layer, sizes, 3);
  const Projection w_o(layer, n_embd);
  const int stride = heads.n_most() + 2;
  const auto measure = [&](ThreadOrder order) {
    std::vector<float> norms(static_cast<std::size_t>(n_kv_head * stride), -1.0F);
    simt::Queue queue(order);
    queue_projected_norms(queue, {.layer = layer,
                                  .heads = heads.tables(),
                                  .n_most = heads.n_most(),
                                  .stride = stride,
                                  .w_o = w_o.rows.data(),
                                  .n_embd = n_embd,
                                  .norms = norms.data()});
    return norms;
  };
  const std::vector<float> norms = measure(ThreadOrder::kAscending);
  EXPECT_EQ(measure(ThreadOrder::kRandom), norms);
  for (int h = 0; h < n_kv_head; ++h) {
    const std::size_t n_slice = static_cast<std::size_t>(n_group * dim * n_embd);
    const std::vector<double> expected = kernels::reference::projected_value_norms(
        heads.shape(), heads.entries(h), std::span(w_o.slices).subspan(static_cast<std::size_t>(h) * n_slice, n_slice),
        n_embd);
    for (int i = 0; i < stride; ++i) {
      const float norm = norms[static_cast<std::size_t>(h * stride + i)];
      if (i >= sizes[static_cast<std::size_t>(h)].n_entries) {
        ASSERT_EQ(norm, -1.0F) << "written behind the entries";
        continue;
      }
      const double wanted = expected[static_cast<std::size_t>(i)];
      ASSERT_NEAR(static_cast<double>(norm), wanted, 1e-5 * wanted) << h << " " << i;
    }
  }
}

TEST(ProjectedNorms, MatchTheReference) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 48, 64, 96, 128, 256}) expect_reference(type, dim, 2, 80, {{70, 5}});
    expect_reference(type, 32, 1, 200, {{1}, {33, 5}, {0}, {200, 31}, {64}});
    expect_reference(type, 32, 3, 64, {{128, 1}, {127, 1}, {97, 31}, {128}});
    expect_reference(type, 16, 5, 10, {{300}});
  }
}

}  // namespace
}  // namespace winnow::device
