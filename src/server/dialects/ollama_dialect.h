// Ollama's /api/chat and /api/generate, which stream one object per line instead of events.
#pragma once

#include <string>
#include <vector>

#include "server/dialects/dialect.h"

namespace winnow::server {

class OllamaDialect : public Dialect {
 public:
  enum class Kind { kChat, kGenerate };
  // model_name: the name that is returned if the request names none.
  OllamaDialect(Kind kind, std::string model_name);

  ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) override;
  std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) override;
  std::string delta(const AnswerDelta& delta) override;
  std::string finish(const AnswerEnd& end) override;
  std::string end(const BatchResult& result) override;
  std::string error(const ApiError& error) override;
  // There is no ping, since lines of JSON have no comments.
  std::string ping() const override { return ""; }
  const char* stream_type() const override { return "application/x-ndjson"; }
  const std::string& id() const override { return id_; }

  // Returns the answer to a request without a prompt. done_reason: "load" or "unload".
  Json nothing_said(const char* done_reason) const;

 private:
  Json head() const;
  Json probabilities(const std::vector<BatchToken>& tokens) const;
  Json line(const std::string& content, const std::string& thoughts) const;
  Json last_line(Json line, AnswerCause cause, const BatchResult& result) const;

  const Kind kind_;
  const std::string id_;
  std::string model_name_;
  std::vector<ChatToolCall> calls_;  // of a stream, which sends them whole
  AnswerCause cause_ = AnswerCause::kStop;
  const Model* model_ = nullptr;
  bool wants_probabilities_ = false;
};

// Returns {"error": ".."}.
Json ollama_error(const ApiError& error);

// Return the answers of /api/tags, /api/show and /api/ps. name: the model's.
Json ollama_tags(const Model& model, const std::string& name);
Json ollama_show(const Model& model);
Json ollama_running(const Model& model, const std::string& name);
// Returns the name under which ollama's clients find the model: with a tag.
std::string ollama_name(const std::string& name);

}  // namespace winnow::server
