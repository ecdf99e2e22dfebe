#include "eval/run/answer.h"

#include <cstdio>
#include <type_traits>

#include "base/fnv1a.h"
#include "base/utf8.h"

namespace winnow::eval {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostShownBytes = 600;
constexpr std::string_view kEndOfText = "\xFF";  // a byte that UTF-8 never has: "ab", "c" is not "a", "bc"

// Calls visit(name, member) for each member of a line, to write or read it.
template <typename Key, typename Visit>
void visit_key(Key& key, const Visit& visit) {
  visit("benchmark", key.benchmark);
  visit("task", key.task);
  visit("id", key.id);
  visit("turn", key.turn);
  visit("question", key.question);
  visit("method", key.method);
  visit("budget", key.budget);
}

constexpr const char *kKeyType = "key_type", *kValueType = "value_type";

template <typename TheAnswer, typename Visit>
void visit_members(TheAnswer& answer, const Visit& visit) {
  visit("answer", answer.text);
  visit("nll_tokens", answer.nll_tokens);
  visit("prompt_tokens", answer.prompt_tokens);
  visit("answer_tokens", answer.answer_tokens);
  visit("truncated", answer.is_truncated);
  visit("whole", answer.is_whole);
  visit("entries_full", answer.entries_full);
  visit("entries_kept", answer.entries_kept);
  visit("bytes_full", answer.bytes_full);
  visit("bytes_kept", answer.bytes_kept);
  visit("together", answer.n_together);
  visit("prefill_s", answer.prefill_s);
  visit("evict_s", answer.evict_s);
  visit("decode_s", answer.decode_s);
}

template <typename TheAnswer, typename Visit>
void visit_optional_members(TheAnswer& answer, const Visit& visit) {
  visit("score", answer.score);
  visit("keyword", answer.has_keyword);
  visit("nll", answer.nll);
  visit("bytes_peak", answer.bytes_peak);
  visit("budget_taken", answer.budget_taken);
  visit("kl_expected", answer.kl_expected);
}

// Returns the end of a text that may be pages long.
std::string shown_end(const std::string& text) {
  if (text.size() <= kMostShownBytes) return text;
  return valid_utf8("..." + text.substr(text.size() - kMostShownBytes));
}

std::string shown_beginning(const std::string& text) {
  if (text.size() <= kMostShownBytes) return text;
  return valid_utf8(text.substr(0, kMostShownBytes) + "...");
}

void add_texts(const WorkItem& item, Fnv1a& hash) {
  const auto add = [&](std::string_view text) { hash.add(text).add(kEndOfText); };
  for (const std::string* text : {&item.benchmark, &item.sample.task, &item.sample.id, &item.sample.context}) {
    add(*text);
  }
  add(question_mode_name(item.mode));
  for (const Turn& turn : item.sample.turns) {
    for (const std::string* text : {&turn.question, &turn.answer_prefix, &turn.follow_up, &turn.metric}) add(*text);
    for (const std::string& reference : turn.references) add(reference);
    add(std::to_string(turn.max_new));
  }
}

// Returns true if the sample has any classes.
bool add_classes(const WorkItem& item, Fnv1a& hash) {
  bool has_any = false;
  for (const Turn& turn : item.sample.turns) {
    for (const std::string& name : turn.classes) hash.add(name).add(kEndOfText);
    hash.add(kEndOfText);
    has_any = has_any || !turn.classes.empty();
  }
  return has_any;
}

}  // namespace

EntryTypes entry_types(EntryType key, EntryType value) {
  return {std::string(entry_type_name(key)), std::string(entry_type_name(value))};
}

EntryType reference_type(EntryType type) { return type == EntryType::kF32 ? type : EntryType::kF16; }

EntryTypes reference_types(const EntryTypes& types) {
  const std::string_view f32 = entry_type_name(EntryType::kF32);
  const EntryTypes f16;
  return {types.key == f32 ? types.key : f16.key, types.value == f32 ? types.value : f16.value};
}

bool is_multi_turn(const Sample& sample) { return sample.turns.size() > 1 && !sample.turns[1].follow_up.empty(); }

Protocol protocol_of(std::string_view benchmark) {
  if (benchmark == "fidelity") return Protocol::kFidelity;
  if (benchmark.starts_with(kFidelityOf)) return Protocol::kAnswerFidelity;
  if (benchmark == "perplexity") return Protocol::kPerplexity;
  return Protocol::kAnswer;
}

std::string digest(const std::vector<WorkItem>& items) {
  Fnv1a hash;
  for (const WorkItem& item : items) add_texts(item, hash);
  return hex_text(hash.value());
}

std::string classes_digest(const std::vector<WorkItem>& items) {
  Fnv1a hash;
  bool has_any = false;
  for (const WorkItem& item : items) has_any = add_classes(item, hash) || has_any;
  return has_any ? hex_text(hash.value()) : "";
}

Json to_json(const Answer& answer) {
  Json json = Json::object();
  const auto put = [&](const char* name, const auto& value) { json[name] = value; };
  visit_key(answer.key, put);
  put(kKeyType, answer.key.types.key);
  put(kValueType, answer.key.types.value);
  if (!answer.error.empty()) {
    json["error"] = answer.error;
    return json;
  }
  visit_members(answer, put);
  visit_optional_members(answer, [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  });
  if (answer.fidelity) {
    json["kl"] = answer.fidelity->kl;
    json["top1"] = answer.fidelity->top1;
    json["full_nll"] = answer.fidelity->full_nll;
  }
  return json;
}

Answer answer_from_json(const Json& json, const EntryTypes& types) {
  Answer answer;
  const auto get = [&](const char* name, auto& value) { json.at(name).get_to(value); };
  visit_key(answer.key, get);
  answer.key.types = {json.value(kKeyType, types.key), json.value(kValueType, types.value)};
  answer.error = json.value("error", "");
  if (!answer.error.empty()) return answer;
  visit_members(answer, get);
  visit_optional_members(answer, [&](const char* name, auto& value) {
    // NaN (from a model's broken logits) is written as null.
    const auto found = json.find(name);
    if (found != json.end() && !found->is_null())
      value = found->get<typename std::decay_t<decltype(value)>::value_type>();
  });
  if (json.contains("kl") && json.at("kl").is_number())
    answer.fidelity = Fidelity{json.at("kl"), json.at("top1"), json.at("full_nll")};
  return answer;
}

Json sample_to_json(const WorkItem& item) {
  Fnv1a hash;
  add_texts(item, hash);
  add_classes(item, hash);
  Json turns = Json::array();
  for (const Turn& turn : item.sample.turns) {
    Json references = Json::array();
    for (const std::string& reference : turn.references) references.push_back(shown_beginning(reference));
    turns.push_back({{"question", shown_end(turn.question + turn.answer_prefix)},
                     {"references", std::move(references)},
                     {"metric", turn.metric}});
  }
  return {{"benchmark", item.benchmark},
          {"task", item.sample.task},
          {"id", item.sample.id},
          {"question", question_mode_name(item.mode)},
          {kSampleDigest, hex_text(hash.value())},
          {"group", item.sample.group},
          {"cluster", item.sample.cluster},
          {"coordinates", item.sample.coordinates},
          {"context", shown_beginning(item.sample.context)},
          {"turns", std::move(turns)}};
}

}  // namespace winnow::eval
