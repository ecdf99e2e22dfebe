// Sends a generation's answer to its client, whole or as a stream.
#pragma once

#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/answer_events.h"
#include "server/dialects/dialect.h"
#include "server/generation.h"

namespace winnow::server {

// A request that is being answered.
struct Answering {
  ApiRequest request;
  std::unique_ptr<Dialect> dialect;
  std::unique_ptr<AnswerReader> reader;
  std::unique_ptr<Generation> generation;
  double ping_s = 30;  // seconds without events after which a stream sends a ping; 0: never
  std::chrono::steady_clock::time_point deadline;
  std::function<void(const BatchResult&)> on_done;  // for the log
};

// The interval at which a wait checks whether the client is still there.
inline constexpr std::chrono::milliseconds kLook{200};

// Throws ApiError past the deadline, once the client has gone away and, unless is_done, once the server is about to
// end.
void check_still_wanted(std::chrono::steady_clock::time_point deadline, bool is_done);

ApiError error_of(const BatchResult& result);  // returns the error of a result that has failed

// Waits for the whole answer. Throws ApiError, also if the client goes away.
void answer_at_once(Answering& answering, httplib::Response& response);

// Waits until the request is accepted, or throws ApiError. The response then sends the rest.
void answer_as_stream(std::shared_ptr<Answering> answering, httplib::Response& response);

}  // namespace winnow::server
