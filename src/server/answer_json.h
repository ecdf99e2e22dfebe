// Answers in OpenAI's shapes, whole and in chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api_request.h"
#include "server/generation.h"

namespace winnow::server {

class AnswerJson {
 public:
  // model_name: what is said where the request names none.
  AnswerJson(const ApiRequest& request, const Model& model, const std::string& model_name);

  // Chunks of a stream, in the order of the events. The role comes first.
  std::vector<Json> first_chunks() const;
  std::vector<Json> chunks(const TextPiece& piece);
  std::vector<Json> chunks(const AnswerEnd& end);
  Json usage_chunk(const BatchResult& result) const;

  // The whole answer: every event but the result, then the object.
  void add(const TextPiece& piece);
  void add(const AnswerEnd& end);
  Json whole(const BatchResult& result) const;

  const std::string& id() const { return id_; }

 private:
  struct Choice {
    std::string text;
    std::optional<ChatReader> reader;  // of a chat's answer that is more than text
    Json probabilities;                // of chat: the list "content"; of completions: the object "logprobs"
    const char* reason = "stop";
  };
  Json head(const char* kind) const;
  // A chunk with what came to a chat's answer.
  Json delta_chunk(int answer, const Json& delta) const;
  const char* reason_of(const AnswerEnd& end) const;
  Json message_json(const Choice& choice) const;
  Json empty_probabilities() const;
  Json probabilities(const TextPiece& piece, std::size_t text_offset) const;
  void append(Json& all, const Json& more) const;
  Json timings(const BatchResult& result) const;

  const Endpoint endpoint_;
  const bool wants_probabilities_, wants_heads_;
  const Model& model_;
  std::string id_, model_name_;
  std::int64_t created_;
  std::vector<Choice> choices_;
  std::vector<std::size_t> shown_;  // bytes of text in chunks so far, by answer
};

Json usage_json(const BatchResult& result);
// What the answer took, and what was kept for it.
Json timings_json(const BatchResult& result);

}  // namespace winnow::server
