// The state of a chat: one session, fed turn by turn through the model's chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "cli/run_report.h"
#include "winnow/generate.h"
#include "winnow/session.h"

namespace winnow::cli {

struct ConversationOptions {
  SessionOptions session;
  SamplingOptions sampling;
  int max_tokens = -1;
  std::string system;
  std::string document;  // precedes the first message, and is compressed without it
};

class Conversation {
 public:
  Conversation(std::shared_ptr<Engine> engine, ConversationOptions options);

  // Feeds the document, if there is one and it has not been fed. Returns false if interrupted; the document is then fed
  // before the next message.
  bool read_document(const Interrupt& interrupt);

  // Feeds a message and streams the answer to the standard output. Returns kStopped if nobody reads that any more.
  FinishReason say(const std::string& message, const Interrupt& interrupt);

  // Resets the conversation to the state before the first message.
  void clear();
  void save(const std::string& path) const { session_.save(path); }
  // Loads a saved conversation. After an error the conversation is as before.
  void load(const std::string& path);

  std::int32_t n_tokens() const { return session_.n_tokens(); }
  RunReport report() const;

 private:
  Sampler next_sampler();

  std::shared_ptr<Engine> engine_;
  ConversationOptions options_;
  Session session_;
  std::optional<std::string> document_end_;  // template after the first message, once the document is fed
  std::uint32_t n_answers_ = 0;
  std::vector<Token> generated_;
  double ttft_s_ = 0;
};

}  // namespace winnow::cli
