#include "eval/run/answer.h"

#include <cstdio>

namespace winnow::eval {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostShownBytes = 600;

template <typename T>
void put(Json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

template <typename T>
void get(const Json& json, const char* name, std::optional<T>& value) {
  if (const auto found = json.find(name); found != json.end() && !found->is_null()) value = found->get<T>();
}

// The beginning or the end of a text that may be pages long.
std::string shown_end(const std::string& text) {
  if (text.size() <= kMostShownBytes) return text;
  return valid_utf8("..." + text.substr(text.size() - kMostShownBytes));
}

std::string shown_beginning(const std::string& text) {
  if (text.size() <= kMostShownBytes) return text;
  return valid_utf8(text.substr(0, kMostShownBytes) + "...");
}

class Fnv1a {
 public:
  void add(std::string_view text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(0xFF);  // never in UTF-8: "ab", "c" is not "a", "bc"
  }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  void mix(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001B3ULL; }
  std::uint64_t state_ = 0xCBF29CE484222325ULL;
};

}  // namespace

bool is_multi_turn(const Sample& sample) { return sample.turns.size() > 1 && !sample.turns[1].follow_up.empty(); }

Protocol protocol_of(std::string_view benchmark) {
  if (benchmark == "fidelity") return Protocol::kFidelity;
  if (benchmark == "perplexity") return Protocol::kPerplexity;
  return Protocol::kAnswer;
}

std::string digest(const std::vector<WorkItem>& items) {
  Fnv1a hash;
  for (const WorkItem& item : items) {
    for (const std::string* text : {&item.benchmark, &item.sample.task, &item.sample.id, &item.sample.context}) {
      hash.add(*text);
    }
    hash.add(question_mode_name(item.mode));
    for (const Turn& turn : item.sample.turns) {
      for (const std::string* text : {&turn.question, &turn.answer_prefix, &turn.follow_up, &turn.metric})
        hash.add(*text);
      for (const std::string& reference : turn.references) hash.add(reference);
      hash.add(std::to_string(turn.max_new));
    }
  }
  return hash.hex();
}

std::string valid_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

Json to_json(const Answer& answer) {
  const AnswerKey& key = answer.key;
  Json json{{"benchmark", key.benchmark}, {"task", key.task},     {"id", key.id},        {"turn", key.turn},
            {"question", key.question},   {"method", key.method}, {"budget", key.budget}};
  if (!answer.error.empty()) {
    json["error"] = answer.error;
    return json;
  }
  json["answer"] = answer.text;
  put(json, "score", answer.score);
  put(json, "keyword", answer.has_keyword);
  put(json, "nll", answer.nll);
  if (answer.nll) json["nll_tokens"] = answer.nll_tokens;
  if (answer.fidelity) {
    json["kl"] = answer.fidelity->kl;
    json["top1"] = answer.fidelity->top1;
    json["full_nll"] = answer.fidelity->full_nll;
  }
  json["prompt_tokens"] = answer.prompt_tokens;
  json["answer_tokens"] = answer.answer_tokens;
  json["truncated"] = answer.is_truncated;
  json["whole"] = answer.is_whole;
  json["entries_full"] = answer.entries_full;
  json["entries_kept"] = answer.entries_kept;
  json["bytes_full"] = answer.bytes_full;
  json["bytes_kept"] = answer.bytes_kept;
  put(json, "bytes_peak", answer.bytes_peak);
  json["together"] = answer.n_together;
  json["prefill_s"] = answer.prefill_s;
  json["evict_s"] = answer.evict_s;
  json["decode_s"] = answer.decode_s;
  return json;
}

Answer answer_from_json(const Json& json) {
  Answer answer;
  AnswerKey& key = answer.key;
  json.at("benchmark").get_to(key.benchmark);
  json.at("task").get_to(key.task);
  json.at("id").get_to(key.id);
  json.at("turn").get_to(key.turn);
  json.at("question").get_to(key.question);
  json.at("method").get_to(key.method);
  json.at("budget").get_to(key.budget);
  answer.error = json.value("error", "");
  if (!answer.error.empty()) return answer;
  json.at("answer").get_to(answer.text);
  get(json, "score", answer.score);
  get(json, "keyword", answer.has_keyword);
  get(json, "nll", answer.nll);
  answer.nll_tokens = json.value("nll_tokens", 0);
  if (json.contains("kl")) answer.fidelity = Fidelity{json.at("kl"), json.at("top1"), json.at("full_nll")};
  json.at("prompt_tokens").get_to(answer.prompt_tokens);
  json.at("answer_tokens").get_to(answer.answer_tokens);
  json.at("truncated").get_to(answer.is_truncated);
  json.at("whole").get_to(answer.is_whole);
  json.at("entries_full").get_to(answer.entries_full);
  json.at("entries_kept").get_to(answer.entries_kept);
  json.at("bytes_full").get_to(answer.bytes_full);
  json.at("bytes_kept").get_to(answer.bytes_kept);
  get(json, "bytes_peak", answer.bytes_peak);
  json.at("together").get_to(answer.n_together);
  json.at("prefill_s").get_to(answer.prefill_s);
  json.at("evict_s").get_to(answer.evict_s);
  json.at("decode_s").get_to(answer.decode_s);
  return answer;
}

Json sample_to_json(const WorkItem& item) {
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
          {"group", item.sample.group},
          {"cluster", item.sample.cluster},
          {"coordinates", item.sample.coordinates},
          {"context", shown_beginning(item.sample.context)},
          {"turns", std::move(turns)}};
}

}  // namespace winnow::eval
