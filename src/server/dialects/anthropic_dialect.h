// Anthropic's /v1/messages.
#pragma once

#include <string>

#include "server/dialects/dialect.h"

namespace winnow::server {

class AnthropicDialect : public Dialect {
 public:
  // model_name: the name that is returned if the request names none.
  explicit AnthropicDialect(std::string model_name);

  ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) override;
  std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) override;
  std::string begin() override;
  std::string delta(const AnswerDelta& delta) override;
  std::string finish(const AnswerEnd& end) override;
  std::string end(const BatchResult& result) override;
  std::string error(const ApiError& error) override;
  std::string ping() const override;
  const std::string& id() const override { return id_; }

 private:
  enum class Block { kNone, kText, kThinking, kTool };
  Json head() const;
  // Returns the events that end the open block; empty if none is open.
  std::string close_block();
  // Returns the events that end the open block and begin this one; empty if it is open already. call: the index of a
  // tool call.
  std::string open_block(Block block, const Json& content, int call = -1);
  std::string piece(const char* kind, const char* name, const std::string& text) const;

  const std::string id_;
  std::string model_name_;
  std::size_t n_prompt_tokens_ = 0;
  Block block_ = Block::kNone;  // the open block
  int index_ = -1, call_ = -1;  // of the block that was opened last, and of its call
  AnswerEnd end_;
};

// Returns {"type": "error", "error": ..}.
Json anthropic_error(const ApiError& error);

}  // namespace winnow::server
