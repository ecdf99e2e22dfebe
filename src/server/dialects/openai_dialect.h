// OpenAI's /v1/chat/completions and /v1/completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/dialects/dialect.h"

namespace winnow::server {

class OpenAiDialect : public Dialect {
 public:
  // model_name: the name that is returned if the request names none.
  OpenAiDialect(Endpoint endpoint, std::string model_name);

  ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) override;
  void take_scores(const PromptScores& scores) override;
  std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) override;
  std::string begin() override;
  std::string delta(const AnswerDelta& delta) override;
  std::string finish(const AnswerEnd& end) override;
  std::string end(const BatchResult& result) override;
  std::string error(const ApiError& error) override;
  const std::string& id() const override { return id_; }

 private:
  bool is_chat() const { return endpoint_ == Endpoint::kChat; }
  Json head(const char* kind) const;
  // Returns the text before an answer: that of its prompt, if "echo" asks for it.
  std::string echo_of(int answer) const;
  // Returns a chunk of one answer. `content`: a chat's delta, or a completion's text.
  Json chunk(int answer, const Json& content, const Json& logprobs, const Json& reason) const;
  Json probabilities(const std::vector<BatchToken>& tokens, const std::vector<std::size_t>& offsets) const;
  // Returns those of an answer that is not streamed, after those of its prompt if these are asked for.
  Json probabilities(const WholeAnswer& answer) const;
  Json timings(const BatchResult& result) const;

  const Endpoint endpoint_;
  const std::string id_;
  const std::int64_t created_;
  std::string model_name_;
  const Model* model_ = nullptr;                        // from parse() on
  int n_answers_ = 0, n_sampled_ = 1, n_returned_ = 1;  // in all; for each prompt: sampled, returned
  std::vector<std::string> echoes_;
  std::vector<std::vector<BatchToken>> scores_;  // of the prompts' tokens, if they are asked for
  bool wants_probabilities_ = false, wants_usage_ = false, wants_heads_ = false;
};

}  // namespace winnow::server
