#include "cache/page_format.h"

namespace winnow {

PageKind LayerFormat::cut(std::size_t page, std::size_t n_high_pages, bool is_raised) const {
  if (has_sink_page() && page == 0) return PageKind::kSinkPage;
  if (raises(is_raised)) return awaits_refit ? PageKind::kFloat : PageKind::kAfterCut;
  if (page <= n_high_pages && n_high_pages > 0) return awaits_refit ? PageKind::kHighAwaitingRefit : PageKind::kHigh;
  return awaits_refit ? PageKind::kAwaitingRefit : PageKind::kQuantised;
}

LayerFormat layer_format(const CacheShape& shape, int layer) {
  const LayerShape& sizes = shape.layer(layer);
  LayerFormat format = {.n_kv_head = sizes.n_kv_head,
                        .key_dim = sizes.key_dim,
                        .value_dim = sizes.value_dim,
                        .sliding_window = sizes.sliding_window,
                        .is_quantised = shape.has_codes()};
  if (sizes.n_kv_head == 0) return format;
  const auto page_format = [&](const auto& types, std::int32_t first_slot = 0) {
    return PageFormat{.key_type = types.key_type,
                      .value_type = types.value_type,
                      .key_bytes = row_bytes(types.key_type, sizes.key_dim),
                      .value_bytes = row_bytes(types.value_type, sizes.value_dim),
                      .first_slot = first_slot};
  };
  format.formats.fill(page_format(shape));
  if (!shape.has_codes()) return format;
  const CacheShape plain = shape.plain(), held = shape.held();
  format.of(PageKind::kFloat) = page_format(plain);
  format.of(PageKind::kSinkPage) = page_format(plain, kPageEntries - kPlainEntries);
  format.of(PageKind::kAwaitingRefit) = format.of(PageKind::kHighAwaitingRefit) = page_format(held);
  if (shape.high) {
    format.of(PageKind::kHigh) = page_format(*shape.high);
    format.of(PageKind::kHighAwaitingRefit) = page_format(*held.high);
  }
  if (!shape.later) return format;
  if (sizes.sliding_window > 0) {
    format.of(PageKind::kQuantised) = page_format(*shape.later);
  } else {
    format.of(PageKind::kAfterCut) = page_format(*shape.later);
    format.after_cut = PageKind::kAfterCut;
  }
  return format;
}

}  // namespace winnow
