// The interface of an API dialect, which translates a request's JSON to the server's own request, and the server's own
// answer to its own JSON. A route of the service names a dialect; each has a pair of files of its own.
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

// The next piece of an answer: text, thinking, a piece of a tool call.
struct AnswerDelta {
  int answer = 0;
  ChatDelta delta;
  std::vector<BatchToken> tokens;  // set if probabilities are wanted
  std::size_t offset = 0;          // characters of the answer's text before it
};

// An answer that is not streamed.
struct WholeAnswer {
  ChatMessage message;               // its text in `content`, its thoughts in `reasoning`
  std::vector<BatchToken> tokens;    // set if probabilities are wanted
  std::vector<std::size_t> offsets;  // [tokens]: characters of text before the piece that each belongs to
  AnswerEnd end;
};

// The translator of one request and its answer. Not thread-safe. The BatchResult has the usage, with the cached tokens.
class Dialect {
 public:
  virtual ~Dialect() = default;

  // Parses the request's body. Called once, before all others. Throws ApiError and winnow::Error.
  virtual ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) = 0;

  // Called before whole() for each prompt whose tokens' probabilities parse() asked for.
  virtual void take_scores(const PromptScores&) {}

  // Returns the answers [n_answers] as JSON. Called once, for a request that is not streamed.
  virtual std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) = 0;

  // Return the bytes of a stream: at its beginning, for each delta, at each answer's end, at the end of all, or for an
  // error that ends it. Any may be empty.
  virtual std::string begin() { return ""; }
  virtual std::string delta(const AnswerDelta& delta) = 0;
  virtual std::string finish(const AnswerEnd& end) = 0;
  virtual std::string end(const BatchResult& result) = 0;
  virtual std::string error(const ApiError& error) = 0;
  // Returns bytes which show that the server is still there. Clients ignore them.
  virtual std::string ping() const { return ": ping\n\n"; }
  virtual const char* stream_type() const { return "text/event-stream"; }

  // Returns the answer's id, for the log.
  virtual const std::string& id() const = 0;
};

// Returns an error as clients of a path expect it (routes.cc).
Json error_body(const std::string& path, const ApiError& error);

}  // namespace winnow::server
