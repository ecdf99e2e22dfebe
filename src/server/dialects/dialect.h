// What an API dialect is: it reads a request's JSON as the server's own request, and writes the server's own answer in
// its own JSON. A route of the service names one; each is a pair of files of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/api_request.h"
#include "server/generation.h"
#include "winnow/batch.h"
#include "winnow/chat.h"

namespace winnow::server {

// What came to an answer: text, thoughts, a piece of a call.
struct AnswerDelta {
  int answer = 0;
  ChatDelta delta;
  std::vector<BatchToken> tokens;  // where probabilities are wanted
  std::size_t offset = 0;          // characters of the answer's text before it
};

// An answer that is not streamed.
struct WholeAnswer {
  ChatMessage message;               // its text in `content`, its thoughts in `reasoning`
  std::vector<BatchToken> tokens;    // where probabilities are wanted
  std::vector<std::size_t> offsets;  // [tokens]: characters of text before the piece that each belongs to
  AnswerEnd end;
};

// One request and its answer. Not thread-safe. What a request used, cached tokens among it, is in the BatchResult.
class Dialect {
 public:
  virtual ~Dialect() = default;

  // `body`: the request's. Once, and first. Throws ApiError and winnow::Error.
  virtual ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) = 0;

  // Before whole(), of each prompt whose tokens' probabilities parse() asked for.
  virtual void take_scores(const PromptScores&) {}

  // The answers [n_answers] as JSON. Once, for a request that is not streamed.
  virtual std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) = 0;

  // The bytes of a stream: before everything, for each delta, each answer's end, the end of all, or an error that ends
  // it. Any may be empty.
  virtual std::string begin() { return ""; }
  virtual std::string delta(const AnswerDelta& delta) = 0;
  virtual std::string finish(const AnswerEnd& end) = 0;
  virtual std::string end(const BatchResult& result) = 0;
  virtual std::string error(const ApiError& error) = 0;
  // Says that the server is still there. Clients pass over it.
  virtual std::string ping() const { return ": ping\n\n"; }
  virtual const char* stream_type() const { return "text/event-stream"; }

  // Of the answer, for the log.
  virtual const std::string& id() const = 0;
};

// An error as clients of a path expect it (routes.cc).
Json error_body(const std::string& path, const ApiError& error);

}  // namespace winnow::server
