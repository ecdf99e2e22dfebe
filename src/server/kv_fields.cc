#include "server/kv_fields.h"

#include <algorithm>
#include <set>

namespace winnow::server {
namespace {

// A context of fewer tokens costs less to read again than to keep.
constexpr std::size_t kLeastShared = 32;

SessionOptions chosen_session(const KvFields& kv, const RequestDefaults& defaults) {
  SessionOptions session = defaults.session;
  if (kv.evict) {
    session.eviction = EvictionOptions::parse(*kv.evict);
    if (!session.eviction.evicts()) {
      session.budget.reset();
      session.prefill_chunk = 0;
      session.decode_cut = SessionOptions::DecodeCut::kKeep;
    }
  }
  if (kv.budget) {
    if (!session.eviction.evicts() && kv.evict) {
      throw ApiError(400, "'kv.budget' has no effect on the full cache: name another method in 'kv.evict', e.g. auto",
                     "kv.budget");
    }
    if (!session.eviction.evicts()) session.eviction = EvictionOptions::parse("auto");
    session.budget = Budget::parse(*kv.budget);
  }
  if (session.eviction.evicts() && !session.budget) {
    throw ApiError(400,
                   "'kv.evict' needs a 'kv.budget', e.g. \"20%\" of the prompt, \"5%bytes\" of its bytes in f16, "
                   "\"512\" tokens a head, \"64MiB\" or \"kl=0.02\"",
                   "kv.budget");
  }
  return session;
}

Reuse parse_reuse(const Fields& fields, const Fields& kv) {
  if (!fields.boolean("cache_prompt").value_or(true)) return Reuse::kNone;
  const std::string name = kv.text("reuse").value_or("continue");
  if (name != "continue" && name != "exact") {
    kv.refuse("reuse",
              "must be \"continue\" (a compressed conversation goes on from its compressed cache) or \"exact\" (it is "
              "compressed as if it were read at once)");
  }
  return name == "exact" ? Reuse::kExact : Reuse::kContinue;
}

SessionOptions full_session(const RequestDefaults& defaults) {
  SessionOptions session;
  session.key_type = defaults.session.key_type;
  session.value_type = defaults.session.value_type;
  session.n_ctx = defaults.session.n_ctx;
  return session;
}

}  // namespace

KvFields parse_kv(const Fields& fields) {
  KvFields kv;
  const Json nothing = Json::object();
  const Json* given = fields.object("kv");
  const Json& object = given == nullptr ? nothing : *given;
  const Fields inner = fields.inner("kv", object);
  static const std::set<std::string> kNames = {"evict", "budget", "context", "question_aware",
                                               "keep",  "reuse",  "heads"};
  for (const auto& [name, value] : object.items()) {
    if (kNames.contains(name)) continue;
    throw ApiError(
        400, "there is no field 'kv." + name + "': use evict, budget, context, question_aware, keep, reuse or heads",
        "kv." + name);
  }
  kv.evict = inner.text("evict");
  // A client must not have the server open files, as head-file and profile would.
  if (kv.evict && kv.evict->find("file") != std::string::npos) {
    inner.refuse("evict", "may not name files: start the server with that --kv-evict instead");
  }
  if (const Json* budget = inner.find("budget")) {
    kv.budget = budget->is_number_integer() ? budget->dump() : inner.text("budget");
  }
  kv.document = inner.text("context");
  if (kv.document && kv.document->empty()) inner.refuse("context", "is empty: leave it out");
  kv.is_question_aware = inner.boolean("question_aware");
  kv.is_kept = inner.boolean("keep").value_or(true);
  kv.reuse = parse_reuse(fields, inner);
  kv.wants_heads = inner.boolean("heads").value_or(false);
  return kv;
}

void apply_kv(const KvFields& kv, const RequestDefaults& defaults, PromptTokens parts, bool ends_with_question,
              BatchRequest& request) {
  request.session = chosen_session(kv, defaults);
  request.keep = kv.is_kept;
  request.reuse = kv.reuse;
  const bool is_asked_for = kv.evict || kv.budget;
  const auto least = static_cast<std::size_t>(is_asked_for ? 0 : defaults.min_kv_tokens);
  const bool evicts = request.session.eviction.evicts();
  bool is_shared = parts.context.size() >= kLeastShared;
  if (!kv.document && evicts) is_shared &= parts.context.size() >= static_cast<std::size_t>(defaults.min_kv_tokens);
  if (kv.document) is_shared = !parts.context.empty();
  if (kv.is_question_aware) is_shared = !*kv.is_question_aware && !parts.context.empty();
  if (!is_shared) {
    parts.question.insert(parts.question.begin(), parts.context.begin(), parts.context.end());
    parts.context.clear();
  }
  const std::size_t n_cut = is_shared ? parts.context.size() : parts.question.size();
  if (evicts && n_cut < least) request.session = full_session(defaults);
  request.session.question_aware = !is_shared && kv.is_question_aware.value_or(ends_with_question);
  request.context = std::move(parts.context);
  request.prompt = std::move(parts.question);
}

}  // namespace winnow::server
