// Engines and sessions. An engine computes with a model; a session is one sequence: its tokens, its ragged KV cache and
// its eviction policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"
#include "winnow/entry_type.h"
#include "winnow/error.h"
#include "winnow/eviction.h"
#include "winnow/model.h"
#include "winnow/pipeline.h"

namespace WINNOW_API winnow {

// The least tokens of a prompt or turn for which PrefillWeights::kAuto converts a layer's weights: weights of types
// that winnow does not multiply as they are, and (with AMX) all others.
inline constexpr std::int32_t kMinConvertedTokens = 40;
inline constexpr std::int32_t kMinConvertedInt8Tokens = 1024;

// The number format in which a prompt is multiplied with the weights. On a GPU kAuto converts to bf16 from 1,024 tokens
// on, kFloat is kBf16 (but for experts, which stay in the file's types), kInt8 is kAsIs, and kF32 is refused.
enum class PrefillWeights {
  kAuto,   // int8 products; with AMX bf16 from kMinConvertedInt8Tokens tokens on; nothing is converted for fewer than
           // kMinConvertedTokens
  kAsIs,   // on the file's types; activations that meet quantised weights are rounded to 8 bits
  kFloat,  // as kBf16 where the processor multiplies bf16, else as kF32: nothing is rounded to 8 bits
  kBf16,   // weights are converted to bf16
  kF32,    // weights are converted to f32
  kInt8,   // as kAsIs for types that winnow multiplies itself (q4_0 to q8_0, q2_K to q6_K, iq4_nl, iq4_xs, mxfp4);
           // others are converted to bf16 where the processor multiplies bf16 and the file's weights are not f32, else
           // to f32
};

// Returns the format of a name: "auto", "as-is", "int8", "float", "bf16" or "f32". Throws Error(kInvalidArgument) for
// any other.
PrefillWeights parse_prefill_weights(std::string_view name);

// Settings of an engine.
struct EngineOptions {
  static constexpr int kMostThreads = 512, kMostBatch = 65536;

  int n_threads = 0;               // threads that compute; 0: as many as the machine has physical cores
  std::size_t kv_bytes_limit = 0;  // hard limit of the page pool with all staging buffers, in bytes; 0: none
  // Without such a limit, the fraction (at most 1) of the memory that is free once the engine has its weights that is
  // the limit: of the device's memory, or the machine's. 0: no limit.
  double kv_limit_share = 0;
  // Tokens that go through a layer at a time while prefilling (llama.cpp's ubatch); 0: 512, on a GPU 2,048.
  int n_batch = 0;
  PrefillWeights prefill_weights = PrefillWeights::kAuto;

  // The device that computes. "cpu" is the processor. "cuda:N" is NVIDIA GPU number N ("cuda" the first one), which
  // needs the plugin that `make cuda` builds. "auto" takes a GPU where there is a plugin and a GPU that it can use,
  // else the processor.
  std::string device = "cpu";
  // Layers whose weights stay in the device's memory, the first ones. Those of the others are copied there whenever
  // they are used, which a long prompt hardly feels and every step of decoding does. -1: as many as fit.
  int device_layers = -1;

  // This rank's link to the others, for a model whose layers lie on several machines; null: the engine has all layers.
  // The limits above then hold for each rank's own part.
  std::shared_ptr<PipelineLink> pipeline = nullptr;
  // true: rank 0 alone runs the program, and the only call of the others is Engine::follow. The same on all ranks.
  bool is_led = false;
  // [ranks - 1] the first layer of every rank but the first one; empty: ranges of layers of about equal bytes.
  std::vector<int> pipeline_layers = {};
};

// The memory of an engine.
struct MemoryStatistics {
  std::size_t kv_bytes_in_use;  // pages, staging, scores and states of recurrent layers now
  std::size_t kv_bytes_peak;  // highest kv_bytes_in_use since reset_peak(), or since a session opened on an empty pool
  std::size_t kv_bytes_resident;  // kv_bytes_in_use and free pages that are kept for reuse
  std::size_t kv_bytes_limit;     // as EngineOptions set it; 0: none
  // Bytes of activations, logits and nodes of two graphs, the last decoding step's (which grows with its sequences) and
  // the prefill's. They are not in the pool and its limit.
  std::size_t graph_bytes;
};

// The memory in which an engine computes: its device's, or the machine's.
struct FreeMemory {
  std::size_t bytes_total;
  std::size_t bytes_free;  // now, for all processes
};

// The memory of one rank of a pipeline, which holds the layers first_layer .. last_layer - 1.
struct RankMemory {
  std::int32_t first_layer = 0, last_layer = 0;
  std::uint64_t rss_peak_bytes = 0, kv_bytes_peak = 0;
};

// Settings of a session.
struct SessionOptions {
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  EvictionOptions eviction;      // default: full
  std::optional<Budget> budget;  // part of the cache to keep; needed by every method but full, which takes none
  std::int32_t n_ctx = 0;        // most tokens of the sequence (logical length); 0: the model's trained context

  // True says that prompts end with the question that is answered next, and are cut with it in sight. Methods that
  // would rank by the whole prompt alone (the scorers rms and combined: auto) then weigh what its last rows look at:
  // they get the option question=last, which question-weight=0 makes of no effect. Chunked prefill, whose cuts come
  // before the question, ignores it.
  bool question_aware = false;

  // Chunked prefill: a first prompt longer than this goes through all layers in chunks of so many tokens, and the cache
  // is cut after each chunk. Its peak is then the budget and one chunk, for a prompt of any length. 0: the prompt goes
  // through layer by layer, which needs the whole prompt's keys and values of ONE layer besides the budget, and attends
  // exactly to all of the prompt.
  std::int32_t prefill_chunk = 0;

  // The cuts while decoding.
  //   kKeep: there are none, and every new entry stays
  //   kTotal: after every `cut_every` decoded tokens the cache is cut to the prompt's total, scored by the last window
  //     queries
  //   kOwn: after every token each head is cut to the number of entries that it had after the prompt, scored by the
  //     present query alone (CAKE)
  // The step that decodes a token attends before anything is evicted.
  enum class DecodeCut { kKeep, kTotal, kOwn };
  DecodeCut decode_cut = DecodeCut::kKeep;
  std::int32_t cut_every = 1;

  // Has eviction.bits, if they follow the budget, choose for the model's heads, and sets key_type and value_type to
  // theirs; Engine::open does the same. Throws Error(kInvalidArgument) if a type is set to another one that is not f16.
  void choose_types(const ModelInfo& model);
  // Each returns, once the types are chosen, the types in which keys or values are stored, for people: "r4", or
  // "q8_0+r4" if the best entries have more bits.
  std::string stored_key_types() const;
  std::string stored_value_types() const;
};

// The cut that was chosen for a budget of a loss ("kl=0.02"), measured on a session's first prompt.
struct LossPromise {
  double asked = 0;     // the loss of the budget: KL to the full cache, nats a token
  Budget taken = {};    // the budget chosen: a fraction of the prompt's bytes in f16; all if the prompt is too short
  double expected = 0;  // the loss that was measured for `taken`, nats a token
  std::int32_t n_tokens = 0;  // last tokens of the prompt, on which losses were measured; 0: the prompt was kept whole
  struct Trial {
    Budget budget;
    double kl;  // mean over all but the first quarter of the n_tokens, nats a token
  };
  std::vector<Trial> tried = {};  // budgets that were measured, from the smallest to `taken`
};

// The loss by quantised entries in a session that evicts nothing, measured on its first prompt: query rows spread over
// the prompt attend to some of its entries, before these are quantised and after.
struct CodeLoss {
  double mean_keys = 0;  // KL, in nats, of attention over exact keys to attention over stored keys; mean over KV heads
  double most_keys = 0;  // the same of the head that loses most
  int layer = 0;         // the layer of that head
  int kv_head = 0;       // its index in the layer
  // Squared error of stored values as a fraction of the values' squares, both weighted by attention; the largest of any
  // head.
  double most_values = 0;
  std::int64_t n_heads = 0;     // heads that were measured
  std::int64_t n_too_much = 0;  // of n_heads, those that lose over 0.1 nats of attention or over 0.1 of values' squares
};

// The costs of a session so far. In a pipeline bytes are sums over all ranks, and evict_s is this rank's own.
struct SessionStatistics {
  std::int64_t prompt_tokens = 0;   // tokens fed by prefill() and append()
  std::int64_t decoded_tokens = 0;  // tokens fed by decode()
  double prefill_s = 0;             // seconds of prefill() and append(), eviction included
  // Seconds of eviction: scoring, a pass over the prompt for it, sharing out the budget, compacting. Work that sessions
  // of one prefill share counts in full for each of them.
  double evict_s = 0;
  double decode_s = 0;                          // seconds of decode()
  std::int64_t entries_full = 0;                // entries that the full cache would hold
  std::int64_t entries_kept = 0;                // entries that are stored
  std::size_t bytes_full = 0;                   // entries_full in f16, whatever is stored (no page rounding)
  std::size_t bytes_kept = 0;                   // entries_kept as they are stored
  std::size_t bytes_in_pages = 0;               // whole pages that hold them
  std::size_t rank_bytes_in_pages = 0;          // of these, the part of the pipeline's rank that holds most
  std::size_t recurrent_bytes = 0;              // states of recurrent layers; forks share them
  std::size_t score_bytes = 0;                  // scores of earlier cuts, not in the pages; forks share them
  std::size_t bytes_peak = 0;                   // the engine's kv_bytes_peak since the session began
  std::size_t hidden_bytes = 0;                 // hidden states of the largest prefill
  std::size_t staging_bytes = 0;                // staging buffer of the largest prefill
  std::vector<std::vector<std::int32_t>> kept;  // [n_layer][n_kv_head] stored entries
  // [n_layer][n_kv_head] true for a head that cuts store in more bits than the method says, since those would cost it
  // too much.
  std::vector<std::vector<bool>> raised;
  std::optional<LossPromise> promise = {};  // set if the budget is a loss and a prompt was read
  std::optional<CodeLoss> code_loss = {};   // set if nothing is evicted and entries are quantised
};

// Called while a prompt is prefilled, with the work done and the work in all (layers x tokens). Returning false stops
// the prefill with Error(kCancelled); the session is then as before the call. With several ranks it may end them all
// (winnow/pipeline.h).
using ProgressCallback = std::function<bool(std::int64_t done, std::int64_t total)>;

// Receives the logits [n_vocab] after the token at `position`; they are valid during the call.
using LogitsCallback = std::function<void(std::int32_t position, std::span<const float> logits)>;

// Receives the hidden state [n_embd] of the token at `position` after the last layer and its norm; it is valid during
// the call.
using HiddenCallback = std::function<void(std::int32_t position, std::span<const float> hidden)>;

// The functions that a prefill calls.
struct PrefillOptions {
  ProgressCallback on_progress;
  LogitsCallback on_logits;  // called with every token's logits, which are all computed (slow with large vocabularies)
  // Called with every token's hidden state. Without on_logits no logits are computed then: Session::logits() throws
  // until the session is fed again.
  HiddenCallback on_hidden;
};

// The error of Engine::decode and Session::decode when the step succeeded but a cut after it failed. Every session of
// the step has been fed. Those named here hold more than their budget until the next cut; all others are as after any
// step.
class CutError : public Error {
 public:
  struct Failure {
    std::size_t session;  // index in the step
    ErrorCode code;
    std::string message;
  };
  explicit CutError(std::vector<Failure> the_failures);  // takes one failure at least

  const std::vector<Failure> failures;
};

class Session;

// A prefill that runs in slices, for a program that must do other work in between (a server's running answers). Between
// two steps other sessions of the engine may be fed, also by other prefills; the sessions of this one may not. If it is
// destroyed before it is done, its sessions are as they were before it.
//
// Not thread-safe. Must not outlive its sessions.
class Prefill {
 public:
  Prefill(Prefill&&) noexcept;
  Prefill& operator=(Prefill&&) noexcept;
  ~Prefill();

  // Sends up to EngineOptions::n_batch tokens through one layer, in a pipeline of several ranks through the layers of
  // all of them, or does the work that ends the prefill. Returns true if there is more to do. Throws what
  // Session::prefill throws; the sessions are then as before the prefill.
  bool step();

  bool done() const;
  std::int64_t work_done() const;   // layers x tokens
  std::int64_t work_total() const;  // layers x tokens

  struct Impl;
  explicit Prefill(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// An upper bound of the memory of a request, in bytes, rounded up to whole pages.
struct MemoryEstimate {
  std::size_t kv_bytes_peak;     // pages, staging, scores and recurrent states, at the worst moment of the request
  std::size_t kv_bytes_staging;  // of these, the staging buffer while prefilling
  std::size_t hidden_bytes;      // hidden states while prefilling, not in the pool
  std::size_t recurrent_bytes;   // of kv_bytes_peak, the states of recurrent layers
};

// An engine owns the threads, the compute buffers and the page pool; its sessions keep it alive. Thread-safe: it makes
// one computation at a time, and calls from different threads wait for each other. A callback, scorer or observer that
// an engine calls must not compute with that engine: its calls throw Error(kInvalidArgument).
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Returns a new engine. Throws Error(kInvalidArgument) for options that are out of range or contradict each other or
  // the model, or a device's name that is none, Error(kUnsupported) for prefill weights or an instruction set
  // (WINNOW_ISA) that the processor lacks and for a device that cannot be used, Error(kNotFound) for one that is not
  // there.
  static std::shared_ptr<Engine> create(std::shared_ptr<const Model> model, const EngineOptions& options = {});
  ~Engine();

  // Returns a new, empty session. Throws Error(kInvalidArgument) for options that contradict each other or the model,
  // Error(kUnsupported) for what the method, the model or the device cannot do (cuts while decoding by a scorer that
  // needs the whole prompt; a loss as the budget of most methods), and what EvictionOptions::find_profile throws.
  Session open(const SessionOptions& options = {});

  // Decodes one step of several sequences of this engine at once: tokens[i] is fed to sessions[i], each with its own
  // cache and policy, after which sessions[i]->logits() are valid. The sessions must be distinct. Throws CutError once
  // all are fed; with any other Error (kInvalidArgument, kContextFull, kOutOfMemory) none is fed, and all are as
  // before.
  void decode(std::span<Session* const> sessions, std::span<const Token> tokens);

  // Prefills several empty sessions of this engine with one prompt, computing the forward pass once, and cuts each to
  // its own budget. They may differ in method, budget and quantised types, but not so that one has f16 and another f32
  // or bf16. Throws what Session::prefill throws, and Error(kInvalidArgument) for several sessions of which one is not
  // empty or prefills in chunks.
  void prefill(std::span<Session* const> sessions, std::span<const Token> tokens, const PrefillOptions& options = {});

  // Returns a prefill() in slices. A single session may be in any state, as with Session::prefill. `tokens` are copied.
  // on_logits is called from the last steps, on_progress from every one.
  Prefill start_prefill(std::span<Session* const> sessions, std::span<const Token> tokens,
                        const PrefillOptions& options = {});
  // Returns a Session::append in slices.
  Prefill start_append(Session& session, std::span<const Token> tokens, const PrefillOptions& options = {});

  // Returns the memory that a session with these options takes for a prompt of n_prompt tokens and n_decode more; in a
  // pipeline on the rank that needs most, so that all ranks return the same. Throws what open() and prefill() would
  // throw for them. Changes nothing, and does not wait for a computation.
  MemoryEstimate estimate(const SessionOptions& options, std::int32_t n_prompt, std::int32_t n_decode) const;

  // Returns a session that was saved with Session::save. Throws Error(kBadFile) for a corrupt file or one of another
  // model.
  Session load_session(const std::string& path);

  // Follows rank 0, on every other rank of a pipeline with EngineOptions::is_led: makes the calls that rank 0 makes of
  // its engine and sessions, and returns when that engine is gone. Throws PipelineError if a rank fails.
  void follow();

  const std::shared_ptr<const Model>& model() const;
  int n_threads() const;
  int n_batch() const;
  // Returns what computes: "cpu" or "cuda:N".
  const std::string& device() const;
  // Returns the number of layers whose weights are copied to the device whenever they are used.
  int n_streamed_layers() const;
  // Returns the memory of this engine; in a pipeline, this rank's.
  MemoryStatistics memory() const;
  // Returns what is left of the memory that the engine computes in. Waits for a computation.
  FreeMemory free_memory() const;
  // Returns the memory of every rank, or of this process without a pipeline. All ranks have to make this call.
  std::vector<RankMemory> memory_of_ranks() const;
  // Begins anew to measure MemoryStatistics::kv_bytes_peak.
  void reset_peak();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A sequence: its tokens, its KV cache and its eviction policy. Not thread-safe, but different sessions may be used
// from different threads.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Feeds a prompt and cuts the cache to the budget: layer by layer if the session is empty, else as a later turn
  // (which is appended, and the cache cut if it is over the total). Throws Error(kInvalidArgument) for an empty prompt
  // or a token outside the vocabulary, kContextFull, kOutOfMemory, kCancelled: the session is then as before. If only
  // the cut of a later turn runs out of memory, the turn has been fed and is kept.
  void prefill(std::span<const Token> tokens, const PrefillOptions& options = {});

  // Feeds tokens after those that are there and keeps all of them, e.g. the question after a compressed context. Throws
  // what prefill() throws.
  void append(std::span<const Token> tokens, const PrefillOptions& options = {});

  // Feeds one token. Throws what Engine::decode throws.
  void decode(Token token);

  // Returns the logits [n_vocab] after the last token fed; they are valid until the session is fed again. Throws
  // Error(kInvalidArgument) if nothing was fed yet, or truncate() was called since.
  std::span<const float> logits() const;

  // Returns an independent session with the same state. Pages are shared until one of the two writes (copy on write).
  Session fork() const;

  // Returns the greatest length up to n_tokens to which truncate() can bring the sequence back: n_tokens itself if the
  // cache is full and whole; a little less if entries are quantised page by page; 0 if earlier entries are gone (a
  // method that evicts, recurrent layers, a sliding window that has moved on), which truncate() refuses.
  std::int32_t truncatable(std::int32_t n_tokens) const;

  // Forgets all tokens but the first n_tokens, as if the others had never been fed. logits() then throws until the
  // session is fed again. Throws Error(kInvalidArgument) unless n_tokens is n_tokens() or truncatable(n_tokens) and
  // more than 0.
  void truncate(std::int32_t n_tokens);

  // Writes the session to a file with a checksum. It is written under a temporary name first, so that a save that is
  // killed damages nothing. Throws Error(kIo).
  void save(const std::string& path) const;

  // Forgets all tokens, as if the session had just been opened.
  void clear();

  std::int32_t n_tokens() const;          // logical length: the next position
  std::span<const Token> tokens() const;  // every token fed
  SessionStatistics statistics() const;
  // Returns the positions of the entries that a head holds, ascending. Throws Error(kInvalidArgument) for a head that
  // does not exist.
  std::vector<std::int32_t> positions(int layer, int kv_head) const;
  const SessionOptions& options() const;
  const std::shared_ptr<const Model>& model() const;

  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
