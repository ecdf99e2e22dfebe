#include "engine/stored_options.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace winnow {
namespace {

EntryType get_entry_type(NumberReader& reader) {
  const auto type = reader.get<EntryType>();
  const std::span<const EntryType> known = entry_types();
  reader.require(std::find(known.begin(), known.end(), type) != known.end());
  return type;
}

}  // namespace

void put_options(std::ostream& out, const SessionOptions& options) {
  put(out, options.key_type);
  put(out, options.value_type);
  put(out, options.n_ctx);
  put(out, options.prefill_chunk);
  put(out, static_cast<std::int32_t>(options.decode_cut));
  put(out, options.cut_every);
  put_text(out, options.eviction.text());
  put_text(out, options.budget ? options.budget->text() : "");
}

SessionOptions get_options(NumberReader& reader) {
  SessionOptions options;
  options.key_type = get_entry_type(reader);
  options.value_type = get_entry_type(reader);
  options.n_ctx = reader.get<std::int32_t>();
  options.prefill_chunk = reader.get<std::int32_t>();
  using DecodeCut = SessionOptions::DecodeCut;
  options.decode_cut =
      static_cast<DecodeCut>(reader.get_in<std::int32_t>(0, static_cast<std::int32_t>(DecodeCut::kOwn)));
  options.cut_every = reader.get<std::int32_t>();
  options.eviction = EvictionOptions::parse(reader.get_text());
  if (const std::string budget = reader.get_text(); !budget.empty()) options.budget = Budget::parse(budget);
  return options;
}

}  // namespace winnow
