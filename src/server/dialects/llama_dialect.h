// llama-server's own /completion and /infill.
#pragma once

#include <string>
#include <vector>

#include "server/dialects/dialect.h"

namespace winnow::server {

class LlamaDialect : public Dialect {
 public:
  enum class Kind { kCompletion, kInfill };
  LlamaDialect(Kind kind, std::string model_name);

  ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) override;
  std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) override;
  std::string delta(const AnswerDelta& delta) override;
  std::string finish(const AnswerEnd& end) override;
  std::string end(const BatchResult& result) override;
  std::string error(const ApiError& error) override;
  const std::string& id() const override { return id_; }

 private:
  Json last(const AnswerEnd& end, const BatchResult& result) const;
  Json probabilities(const std::vector<BatchToken>& tokens) const;
  // Returns the tokens' numbers if the request wants them, else an empty list.
  Json numbers(const std::vector<BatchToken>& tokens) const;

  const Kind kind_;
  const std::string id_;
  std::string model_name_;
  const Model* model_ = nullptr;  // from parse() on
  bool wants_probabilities_ = false, wants_tokens_ = false;
  // By answer: tokens of its prompt, and its own so far.
  std::vector<std::size_t> n_prompt_tokens_;
  std::vector<int> n_tokens_;
  std::vector<AnswerEnd> ends_;  // of a stream
};

}  // namespace winnow::server
