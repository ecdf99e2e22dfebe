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

struct Answering {
  ApiRequest request;
  std::unique_ptr<Dialect> dialect;
  std::unique_ptr<AnswerReader> reader;
  std::unique_ptr<Generation> generation;
  double ping_s = 30;  // a stream without events says so often that it lives; 0: never
  std::chrono::steady_clock::time_point deadline;
  std::function<void(const BatchResult&)> on_done;  // for the log
};

// How often a wait looks whether the client is still there.
inline constexpr std::chrono::milliseconds kLook{200};

// Throws ApiError past the deadline, once nobody is there to read, and, unless all is done, once the server ends.
void check_still_wanted(std::chrono::steady_clock::time_point deadline, bool is_done);

ApiError error_of(const BatchResult& result);  // of one that failed

// Waits for the whole answer. Throws ApiError; a client that goes away ends the wait.
void answer_at_once(Answering& answering, httplib::Response& response);

// Waits until the request is accepted (or throws ApiError), then leaves the rest to the response.
void answer_as_stream(std::shared_ptr<Answering> answering, httplib::Response& response);

}  // namespace winnow::server
