// Many answers from one engine at once: requests join and leave between two steps, long prompts are read in slices
// while other answers go on, and what requests begin with alike is read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "winnow/api.h"
#include "winnow/error.h"
#include "winnow/generate.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

// How far a prompt is that takes long to read.
struct BatchReadingProgress {
  std::uint64_t request = 0;  // that has it read, or waits with others for its context
  std::int32_t n_tokens = 0;  // that are read
  double share = 0;           // of them through all layers
  double seconds = 0;         // since it began
};

struct BatchOptions {
  int n_parallel = 8;   // most answers that are prepared or given at a time
  int max_queued = 64;  // most requests that wait for their turn
  // Most bytes of what is kept for later requests (contexts, and prompts with their answers), in KV pages and what
  // their methods save beside them; what has not been used for long and is read again quickly goes first. 0: a context
  // lives as long as requests use it.
  std::size_t context_bytes = 0;
  // Folder in which kept contexts are saved, and from which they come back, also to other processes that use it and
  // after they had to leave memory. Empty: none. It is made if it is missing.
  std::string cache_dir;
  // Most bytes of the files there, whoever wrote them; those that were not used for longest go. 0: four times
  // context_bytes.
  std::size_t cache_dir_bytes = 0;
  // A conversation that has rested for so many seconds is saved; a context at once, within 2 s where there is other
  // work.
  double save_after_s = 30;
  // Seconds of prefill for every second of decoding, while there are answers to go on with.
  double prefill_share = 1.0;
  // Called from the batch's thread with a sentence about something that failed without failing a request (a damaged
  // saved context, a disk that is full).
  std::function<void(const std::string&)> on_warning;
  // Called from the batch's thread after every so many seconds of a reading.
  std::function<void(const BatchReadingProgress&)> on_reading;
  double between_readings_s = 12;
};

// A token's logarithmic probability in the model's own distribution, before any sampling option.
struct TokenProbability {
  Token token;
  float log_probability;  // natural
};

struct BatchToken {
  int answer;  // 0 .. n_answers - 1
  Token token;
  float log_probability;              // NaN unless n_probabilities >= 0
  std::vector<TokenProbability> top;  // the n_probabilities likeliest, descending
};

struct BatchResult {
  FinishReason reason = FinishReason::kEndOfText;  // of the whole request: the first answer's, or kCancelled, kError
  ErrorCode error_code = ErrorCode::kInternal;     // with kError
  std::string error;                               // with kError
  bool started = false;                            // with kError: on_accept was called before
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  // of these, not read again: something kept begins with them
  std::int32_t answer_tokens = 0;  // of all answers
  double queue_s = 0;              // until it was admitted
  double prefill_s = 0;            // from then until the first token; a share of it went to other requests
  double decode_s = 0;             // from the first token to the last
  SessionStatistics cache;         // what was kept: after the prompt, for each of the answers
  std::string method;              // text form
  std::string budget;              // text form, empty: all
  std::vector<float> embedding;    // [n_embd], not normalised; where it was asked for
};

// All of them are called from the batch's thread and must be quick. They may submit and cancel.
struct BatchCallbacks {
  // The request can be answered, and will be once there is room.
  std::function<void()> on_accept;
  // With n_prompt_probabilities: each token of the prompt in its order, before the answers' first ones. `answer` is 0;
  // NaN and no likeliest ones for a first token that nothing stands before.
  std::function<void(const BatchToken&)> on_prompt_token;
  // False ends this answer with kStopped. End tokens are not reported.
  std::function<bool(const BatchToken&)> on_token;
  std::function<void(int answer, FinishReason)> on_finish;  // an answer's last word
  std::function<void(const BatchResult&)> on_done;          // always the last call, exactly once
};

// What of a request is not read again because something that is kept begins with it. A full cache is the same whichever
// way it came about, and is always taken up to the first token that differs.
enum class Reuse {
  kContinue,  // a cut cache goes on where it is: what is new is appended, and over the budget cut as a later turn
  kExact,     // a cut cache only where its context (or the whole prompt, without one) was cut at once, as if read anew
  kNone,      // nothing, and nothing is kept
};

struct BatchRequest {
  // Instead of answers: the prompt's embedding (embedding.h). Of the rest only n_ctx has a meaning then: there is no
  // context, nothing is reused or kept.
  std::optional<Pooling> embedding;
  // Read and compressed by itself, whatever follows, and shared by all requests with the same tokens and options; what
  // of it was dropped does not depend on the prompt. May be empty.
  std::vector<Token> context;
  // With a context: appended and kept whole. Without: cut as `session` says.
  std::vector<Token> prompt;
  SessionOptions session;
  Reuse reuse = Reuse::kContinue;
  SamplingOptions sampling;
  int n_answers = 1;  // with a fixed seed, answer i gets seed + i
  std::int32_t max_tokens = 1024;
  bool has_answer = true;    // false: the prompt is read, and kept for later requests; each answer ends before a token
  int n_probabilities = -1;  // -1: none; 0: only the token's own
  // Likewise of the prompt's tokens: behind the context where there is one, as it was cut. Nothing of the prompt is
  // then taken from what is kept.
  int n_prompt_probabilities = -1;
  bool ignore_end = false;  // goes on after end tokens, which are then reported as others are
  bool keep = true;         // context, prompt and answers for later requests, within BatchOptions::context_bytes
};

// Thrown by Batch::submit where the queue is full.
class QueueFull : public Error {
 public:
  QueueFull(const std::string& message, int the_retry_after_s)
      : Error(ErrorCode::kOutOfMemory, message), retry_after_s(the_retry_after_s) {}
  const int retry_after_s;
};

// Totals since the start, and what is going on now.
struct BatchStatistics {
  std::int64_t requests = 0, refused = 0, cancelled = 0, failed = 0, finished = 0;
  std::int64_t prompt_tokens = 0;  // read; those that were kept are not in it
  std::int64_t cached_tokens = 0, answer_tokens = 0;
  std::int64_t steps = 0, slices = 0;  // of decoding and of prefill
  double decode_s = 0, prefill_s = 0;  // of the engine
  int n_queued = 0, n_reading = 0, n_answering = 0;
  double turn_s = 0;               // that the turn under way (a step, slices of prefill) has taken; 0: idle
  std::size_t bytes_promised = 0;  // to requests under way and contexts
  std::size_t context_bytes = 0;   // of what is kept: pages, shared ones once, and scores of cuts
  // Requests of which a beginning was kept (or was being read for others), those of which nothing was, and what had to
  // make room.
  std::int64_t context_hits = 0, context_misses = 0, contexts_removed = 0;
};

// What something kept (a context, a prompt, a conversation) or a running request holds.
struct BatchEntry {
  enum class Kind { kContext, kRequest } kind = Kind::kContext;
  std::uint64_t id = 0;
  std::uint64_t parent = 0;  // of a context: the longest other one that it continues; 0: none
  bool is_context = false;   // of a context: read by itself, not the end of a prompt or an answer
  std::string state;         // "reading", "kept" or "answering"
  std::string method, budget;
  std::int32_t n_tokens = 0;
  std::int32_t n_users = 0;  // of a context: requests under way that began with it
  std::int64_t hits = 0;     // of a context: requests that did
  SessionStatistics cache;   // as it was after the prompt
  std::size_t bytes_promised = 0;
};

// Owns a thread that does all of the engine's work. Nobody else should feed sessions of the engine meanwhile (they
// would wait long, and take memory that was promised to requests).
//
// Memory is promised before a request starts: the peak by Engine::estimate, with its hidden states and what sessions
// hold beside pages, has to fit the engine's kv_bytes_limit beside all other promises. A request that does not fit
// waits, and with it those behind it: requests are admitted first come, first served, except that a request which waits
// for a saved prefix to load does not block those behind it. One that could not even fit alone fails with
// kInvalidArgument and the budget that would.
// An engine without a limit promises everything.
// Thread-safe.
class Batch {
 public:
  // Restores saved contexts before it returns. Throws Error(kInvalidArgument), Error(kIo) for a folder that cannot be
  // used.
  Batch(std::shared_ptr<Engine> engine, const BatchOptions& options);
  // Cancels what is still under way.
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Returns the request's number. Reads its grammar on the caller's thread. Throws QueueFull, and Error(kCancelled)
  // after drain(). Everything else that can be wrong with a request reaches on_done.
  std::uint64_t submit(BatchRequest request, BatchCallbacks callbacks);

  // Ends a request as soon as the step or slice under way is over; its pages are then free. Does nothing for a request
  // that is done.
  void cancel(std::uint64_t id);

  // Accepts nothing more. Returns once everything is answered, or after `seconds`: false, and the rest goes on.
  bool drain(double seconds);

  BatchStatistics statistics() const;
  std::vector<BatchEntry> entries() const;
  const std::shared_ptr<Engine>& engine() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
