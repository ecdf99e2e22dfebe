// Continuous batching: a scheduler that gives many answers from one engine at once. Requests join and leave between two
// decoding steps, long prompts are prefilled in slices while other answers go on, and a prefix that requests share is
// read once (a prefix cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "winnow/api.h"
#include "winnow/error.h"
#include "winnow/generate.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

// The progress of a prefill that takes long.
struct BatchReadingProgress {
  std::uint64_t request = 0;  // number of the request whose prompt is read; of a shared context: its first waiting user
  std::int32_t n_tokens = 0;  // tokens that this prefill reads in all
  double share = 0;           // fraction of its work (layers x tokens) that is done, 0 to 1
  double seconds = 0;         // time since it began
};

// Settings of the scheduler.
struct BatchOptions {
  static constexpr int kMaxParallel = 256;
  int n_parallel = 8;   // most answers that are prefilled or decoded at a time, 1 to kMaxParallel
  int max_queued = 64;  // most requests that wait to be admitted
  // Most bytes of the prefix cache, which keeps contexts, prompts and answers for later requests: their KV pages and
  // what their methods save besides. The prefixes that were least recently used and cost least to read again are
  // removed first. 0: a context lives as long as requests use it.
  std::size_t context_bytes = 0;
  // Folder in which cached prefixes are saved. They are loaded from there after they had to leave memory, and by other
  // processes that use the same folder. It is made if it is missing. Empty: nothing is saved.
  std::string cache_dir;
  // Most bytes of the files in cache_dir, whichever process wrote them; the least recently used are deleted first. 0:
  // four times context_bytes.
  std::size_t cache_dir_bytes = 0;
  // A conversation is saved once nobody has continued it for so many seconds. A context is saved at once, or within 2 s
  // while there is other work.
  double save_after_s = 30;
  // Seconds of prefill for every second of decoding, while there are answers to decode.
  double prefill_share = 1.0;
  // Called from the batch's thread with a sentence about something that failed without failing a request (a damaged
  // saved prefix, a full disk).
  std::function<void(const std::string&)> on_warning;
  // Called from the batch's thread during a prefill that takes longer than between_readings_s, and then at such
  // intervals.
  std::function<void(const BatchReadingProgress&)> on_reading;
  double between_readings_s = 12;
};

// A token with its log-probability in the model's own distribution, before any sampling option.
struct TokenProbability {
  Token token;
  float log_probability;  // natural logarithm
};

// One token of an answer or of a prompt, as the callbacks receive it.
struct BatchToken {
  int answer;  // index of the answer, 0 .. n_answers - 1
  Token token;
  float log_probability;              // the token's own; NaN unless n_probabilities >= 0
  std::vector<TokenProbability> top;  // the n_probabilities likeliest tokens, likeliest first
};

// The outcome of one request, with its costs.
struct BatchResult {
  FinishReason reason = FinishReason::kEndOfText;  // of the whole request: the first answer's, or kCancelled, kError
  ErrorCode error_code = ErrorCode::kInternal;     // set with kError
  std::string error;                               // set with kError: a sentence
  bool started = false;                            // set with kError: true if on_accept was called before
  std::int32_t prompt_tokens = 0;                  // tokens of context and prompt
  std::int32_t cached_tokens = 0;                  // of prompt_tokens, those that came from the prefix cache
  std::int32_t answer_tokens = 0;                  // sum over all answers
  double queue_s = 0;                              // seconds from submit() until the request was admitted
  double prefill_s = 0;          // seconds from then until the first token, other requests' work in between included
  double decode_s = 0;           // seconds from the first token to the last
  SessionStatistics cache;       // the KV cache of one answer as it was after the prompt
  std::string method;            // text form
  std::string budget;            // text form; empty: everything is kept
  std::vector<float> embedding;  // [n_embd], not normalised; empty unless BatchRequest::embedding is set
};

// The functions that a request calls as it goes on. All are called from the batch's thread and must be quick. They may
// call submit() and cancel(). What on_token throws fails the request; what on_finish and on_done throw
// becomes a warning (BatchOptions::on_warning).
struct BatchCallbacks {
  // Called once the request is known to be valid: it will be answered as soon as there is room.
  std::function<void()> on_accept;
  // Called with n_prompt_probabilities for each token of the prompt in order, before any answer's first token. `answer`
  // is 0. The sequence's very first token has no distribution before it: NaN, and `top` is empty.
  std::function<void(const BatchToken&)> on_prompt_token;
  // Called for each token of an answer but an end token. Returning false ends this answer with kStopped.
  std::function<bool(const BatchToken&)> on_token;
  std::function<void(int answer, FinishReason)> on_finish;  // called once at the end of each answer
  std::function<void(const BatchResult&)> on_done;          // always the last call, exactly once
};

// How a request uses the prefix cache. A full cache without codes has the same contents whichever way it came about,
// and full caches are always reused up to the first token that differs; the choice is about caches that a method has
// cut.
enum class Reuse {
  kContinue,  // a cut cache is continued: new tokens are appended, and over the budget it is cut as by a later turn
  kExact,     // a cut cache is reused only where its context (or, without one, the whole prompt) was cut in one go, so
              // that the result is the same as without a prefix cache
  kNone,      // nothing is reused, and nothing of the request is kept
};

// One request: the tokens to read, how to cache them, and how to answer.
struct BatchRequest {
  // Set: the request returns its prompt's embedding (embedding.h) instead of answers. Of the other fields only `prompt`
  // and session.n_ctx have a meaning then; nothing is reused or kept.
  std::optional<Pooling> embedding;
  // Tokens that are prefilled and cut by themselves, whatever follows, and shared by all requests with the same tokens
  // and options: what is evicted of them does not depend on the prompt. May be empty.
  std::vector<Token> context;
  // Tokens after the context, which are appended and all kept. Without a context they are prefilled and cut as
  // `session` says.
  std::vector<Token> prompt;
  SessionOptions session;
  Reuse reuse = Reuse::kContinue;
  SamplingOptions sampling;
  int n_answers = 1;               // with a fixed seed, answer i is sampled with seed + i
  std::int32_t max_tokens = 1024;  // most tokens of each answer
  bool has_answer = true;    // false: the prompt is read, and kept for later requests; each answer ends before a token
  int n_probabilities = -1;  // likeliest tokens to report with each token; 0: only its own probability; -1: none
  // The same for the prompt's tokens, which are those after the context where there is one; the context is attended to
  // as it was cut. The prompt is then read in full, whatever the prefix cache has of it.
  int n_prompt_probabilities = -1;
  bool ignore_end = false;  // goes on after end tokens, which are then reported as others are
  bool keep = true;         // keeps context, prompt and answers for later requests, up to BatchOptions::context_bytes
};

// The error that Batch::submit throws when the queue is full.
class QueueFull : public Error {
 public:
  QueueFull(const std::string& message, int the_retry_after_s)
      : Error(ErrorCode::kOutOfMemory, message), retry_after_s(the_retry_after_s) {}
  const int retry_after_s;  // seconds after which there is likely room again
};

// Totals since the batch began, and the state of the present moment.
struct BatchStatistics {
  std::int64_t requests = 0, refused = 0, cancelled = 0, failed = 0, finished = 0;
  std::int64_t prompt_tokens = 0;  // tokens of prompts that were prefilled; those from the prefix cache are not counted
  std::int64_t cached_tokens = 0, answer_tokens = 0;
  std::int64_t steps = 0, slices = 0;                // decoding steps; slices of prefill
  double decode_s = 0, prefill_s = 0;                // seconds that the engine spent on each
  int n_queued = 0, n_reading = 0, n_answering = 0;  // requests that wait or are prefilled now; answers decoded now
  double turn_s = 0;               // seconds that the turn under way (a step, slices of prefill) has taken; 0: idle
  std::size_t bytes_reserved = 0;  // bytes reserved for admitted requests and cached prefixes
  std::size_t context_bytes = 0;   // bytes of the prefix cache: pages, shared ones counted once, and scores of cuts
  // Requests of which a prefix was cached (or was being read for others); requests of which none was; and prefixes that
  // were removed to make room.
  std::int64_t context_hits = 0, context_misses = 0, contexts_removed = 0;
};

// One holder of cache memory: a cached prefix (of a context, a prompt or a conversation) or a running request.
struct BatchEntry {
  enum class Kind { kContext, kRequest } kind = Kind::kContext;
  std::uint64_t id = 0;
  std::uint64_t parent = 0;  // of a prefix: the longest other one that it continues; 0: none
  bool is_context = false;   // of a prefix: true for a context read by itself, false for a prompt or an answer
  std::string state;         // "reading", "kept" or "answering"
  std::string method, budget;
  std::int32_t n_tokens = 0;
  std::int32_t n_users = 0;  // of a prefix: requests under way that began with it
  std::int64_t hits = 0;     // of a prefix: requests that ever began with it
  SessionStatistics cache;   // the cache as it was after the prompt
  std::size_t bytes_reserved = 0;
};

// A scheduler with a thread of its own, which does all of the engine's work. The program should feed no session of the
// engine itself meanwhile: the call would wait long, and take memory that is reserved for requests.
//
// Admission: memory is reserved before a request starts. Its peak by Engine::estimate, with its hidden states and what
// sessions hold besides pages, has to fit the engine's kv_bytes_limit together with all other reservations. Requests
// are admitted first come, first served: one that does not fit yet waits, and those after it wait with it. A request
// that waits for a saved prefix to load does not block those after it. A request that could not fit even alone fails
// with kInvalidArgument and a sentence that names the budget that would fit. An engine without a limit admits
// everything.
// Thread-safe.
class Batch {
 public:
  // Restores saved prefixes before it returns. Throws Error(kInvalidArgument) for an option out of range, Error(kIo)
  // for a cache_dir that cannot be used.
  Batch(std::shared_ptr<Engine> engine, const BatchOptions& options);
  // Cancels all requests that are still under way.
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Queues a request and returns its number, 1 or more. The grammar is parsed on the caller's thread. Throws QueueFull,
  // and Error(kCancelled) after drain(). Everything else that can be wrong with a request reaches on_done.
  //   follows: requests that this one belongs to; while one of them is under way, drain() does not refuse it
  std::uint64_t submit(BatchRequest request, BatchCallbacks callbacks, std::span<const std::uint64_t> follows = {});

  // Ends a request as soon as the step or slice under way is over, which frees its pages. Does nothing for a request
  // that is done.
  void cancel(std::uint64_t id);

  // Refuses new requests from now on and waits for those under way. Returns true once all are answered, or false after
  // `seconds`, in which case the rest goes on.
  bool drain(double seconds);

  // Both return copies of what the batch's thread last published.
  BatchStatistics statistics() const;
  std::vector<BatchEntry> entries() const;
  const std::shared_ptr<Engine>& engine() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
