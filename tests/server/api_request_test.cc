// A request's JSON: the fields that are understood or refused, and the division of prompts.
#include "server/api_request.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/tiny_model.h"
#include "server/body_json.h"
#include "server/chat_fields.h"
#include "server/dialects/anthropic_request.h"
#include "server/dialects/ollama_request.h"

namespace winnow::server {
namespace {

class ApiRequestTest : public testing::Test {
 protected:
  ApiRequest chat(const std::string& more, const std::string& messages = R"([{"role":"user","content":"the hat"}])") {
    return parse_request(Endpoint::kChat,
                         RequestBody(parse_body(R"({"messages":)" + messages + (more.empty() ? "" : ",") + more + "}")),
                         *model_, defaults_);
  }
  ApiRequest complete(const std::string& body) {
    return parse_request(Endpoint::kCompletion, RequestBody(parse_body(body)), *model_, defaults_);
  }
  std::string refusal(const std::function<void()>& parse) {
    try {
      parse();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      EXPECT_GT(std::string(error.what()).size(), 10U);
      return error.param;
    } catch (const Error& error) {
      EXPECT_EQ(api_error(error).status, 400);
      return "library";
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  std::string text(const std::vector<Token>& tokens) {
    std::string text;
    for (const Token token : tokens) text += model_->token_text(token);
    return text;
  }

  const test::TinyModel file_{{.chat_template = test::kChatmlTemplate}};
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
  RequestDefaults defaults_;
};

TEST_F(ApiRequestTest, FieldsArriveWhereTheyBelong) {
  const ApiRequest request = chat(R"("model":"m","temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"seed":-3,
      "frequency_penalty":1,"presence_penalty":-1,"max_tokens":9,"n":2,"stop":["a","b"],"stream":true,
      "stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":4,"user":"u","unknown":{"x":1})"
                                  R"(,"ignore_eos":true)");
  EXPECT_EQ(request.model, "m");
  EXPECT_FLOAT_EQ(request.batch.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(request.batch.sampling.top_p, 0.9F);
  EXPECT_EQ(request.batch.sampling.top_k, 7);
  EXPECT_FLOAT_EQ(request.batch.sampling.frequency_penalty, 1);
  EXPECT_FLOAT_EQ(request.batch.sampling.presence_penalty, -1);
  EXPECT_NE(request.batch.sampling.seed, 0xFFFFFFFFU);
  EXPECT_EQ(request.batch.max_tokens, 9);
  EXPECT_EQ(request.batch.n_answers, 2);
  EXPECT_EQ(request.batch.n_probabilities, 4);
  EXPECT_TRUE(request.batch.ignore_end);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.is_streamed);
  EXPECT_TRUE(request.wants_usage);
  const ApiRequest plain = chat("");
  EXPECT_EQ(plain.batch.max_tokens, 1024);
  EXPECT_EQ(plain.batch.n_probabilities, -1);
  EXPECT_EQ(chat(R"("max_completion_tokens":5,"temperature":null)").batch.max_tokens, 5);
}

TEST_F(ApiRequestTest, SamplersArriveWhereTheyBelong) {
  const SamplingOptions sampling = chat(R"("typical_p":0.5,"top_n_sigma":1,"xtc_probability":0.2,"xtc_threshold":0.3,
      "dynatemp_range":0.4,"dynatemp_exponent":2,"dry_multiplier":0.8,"dry_base":1.5,"dry_allowed_length":3,
      "dry_penalty_last_n":64,"dry_sequence_breakers":["x"],"logit_bias":{"5":-1.5,"6":2},
      "samplers":["dry","typ_p","top_n_sigma","xtc","temperature"])")
                                       .batch.sampling;
  EXPECT_FLOAT_EQ(sampling.typical_p, 0.5F);
  EXPECT_FLOAT_EQ(sampling.top_n_sigma, 1);
  EXPECT_FLOAT_EQ(sampling.xtc_probability, 0.2F);
  EXPECT_FLOAT_EQ(sampling.xtc_threshold, 0.3F);
  EXPECT_FLOAT_EQ(sampling.dynatemp_range, 0.4F);
  EXPECT_FLOAT_EQ(sampling.dynatemp_exponent, 2);
  EXPECT_FLOAT_EQ(sampling.dry_multiplier, 0.8F);
  EXPECT_FLOAT_EQ(sampling.dry_base, 1.5F);
  EXPECT_EQ(sampling.dry_allowed_length, 3);
  EXPECT_EQ(sampling.dry_penalty_last_n, 64);
  EXPECT_EQ(sampling.dry_sequence_breakers, std::vector<std::string>{"x"});
  EXPECT_EQ(sampling.samplers.size(), 5U);
  ASSERT_EQ(sampling.logit_bias.size(), 2U);
  EXPECT_EQ(sampling.logit_bias[0].token, 5);
  EXPECT_FLOAT_EQ(sampling.logit_bias[0].bias, -1.5F);
  const SamplingOptions mirostat = chat(R"("mirostat":1,"mirostat_tau":4,"mirostat_eta":0.2,
      "logit_bias":[[5,false],["the",1]])")
                                       .batch.sampling;
  EXPECT_EQ(mirostat.mirostat, 1);
  EXPECT_FLOAT_EQ(mirostat.mirostat_tau, 4);
  EXPECT_FLOAT_EQ(mirostat.mirostat_eta, 0.2F);
  EXPECT_TRUE(std::isinf(mirostat.logit_bias[0].bias));
  EXPECT_GE(mirostat.logit_bias.size(), 2U);
  // A server's default settings do not make a request invalid.
  defaults_.sampling.typical_p = 0.5F;
  EXPECT_EQ(chat(R"("samplers":["top_k"])").batch.sampling.samplers.size(), 1U);
  EXPECT_EQ(chat(R"("temperature":0,"typical_p":0.5)").batch.sampling.temperature, 0);
}

TEST_F(ApiRequestTest, NoSeedIsTheRandomOne) {
  for (const char* seed : {"4294967295", "-2", "9223372036854775807", "0"}) {
    EXPECT_NE(chat(std::string(R"("seed":)") + seed).batch.sampling.seed, 0xFFFFFFFFU) << seed;
  }
}

TEST_F(ApiRequestTest, MinusOneIsARandomSeedInEveryDialect) {
  EXPECT_EQ(chat(R"("seed":-1)").batch.sampling.seed, 0xFFFFFFFFU);
  EXPECT_EQ(complete(R"({"prompt":"a","seed":-1})").batch.sampling.seed, 0xFFFFFFFFU);
}

TEST_F(ApiRequestTest, SamplersAreNamesOrLetters) {
  using Names = std::vector<std::string>;
  const ApiRequest letters = chat(R"("samplers":"ekt","top_p":0.5,"min_keep":3)");
  EXPECT_EQ(letters.batch.sampling.samplers, (Names{"penalties", "top_k", "temperature"}));
  EXPECT_EQ(letters.batch.sampling.min_keep, 3);
  ASSERT_EQ(letters.warnings.size(), 1U);  // for top_p
  EXPECT_EQ(chat(R"("samplers":"edskypmxt")").batch.sampling.samplers, SamplingOptions::default_samplers());
  EXPECT_EQ(chat(R"("samplers":"edskypmxti")").batch.sampling.samplers, SamplingOptions::sampler_names());
  const ApiRequest other = chat(R"("samplers":["top_k","adaptive_p","temperature"])");
  EXPECT_EQ(other.batch.sampling.samplers, (Names{"top_k", "temperature"}));
  ASSERT_EQ(other.warnings.size(), 1U);
  EXPECT_NE(other.warnings[0].find("adaptive_p"), std::string::npos);
  EXPECT_EQ(chat(R"("samplers":"k?")").warnings.size(), 1U);
}

// Clients send all the fields that they know (SillyTavern, Open WebUI), whichever of them are switched off.
TEST_F(ApiRequestTest, FieldsWithoutAnEffectAreToldInTheLog) {
  for (const char* more :
       {R"("dry_multiplier":0,"dry_penalty_last_n":0)", R"("mirostat":2,"top_p":0.9,"top_k":20,"min_p":0.1)",
        R"("xtc_threshold":0.2)", R"("mirostat":0,"mirostat_tau":4)", R"("samplers":["top_k"],"typical_p":0.5)",
        R"("mirostat":2,"xtc_probability":0.5)", R"("dry_base":3)"}) {
    const ApiRequest request = chat(more);
    ASSERT_EQ(request.warnings.size(), 1U) << more;
    EXPECT_NE(request.warnings[0].find("no effect"), std::string::npos) << request.warnings[0];
  }
  EXPECT_EQ(chat(R"("mirostat":2,"top_k":20)").batch.sampling.mirostat, 2);
  const SamplingOptions sampling =
      chat(R"("dry_multiplier":1,"dry_sequence_breakers":"[\"\\n\",\":\"]")").batch.sampling;
  EXPECT_EQ(sampling.dry_sequence_breakers, (std::vector<std::string>{"\n", ":"}));
}

TEST_F(ApiRequestTest, WrongFieldsAreNamed) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"("temperature":"hot")", "temperature"},
           {R"("temperature":-1)", "temperature"},
           {R"("top_p":1.5)", "top_p"},
           {R"("n":0)", "n"},
           {R"("n":9)", "n"},
           {R"("n":1.5)", "n"},
           {R"("max_tokens":-3)", "max_tokens"},
           {R"("n_predict":"all")", "n_predict"},
           {R"("max_tokens":1e300)", "max_tokens"},
           {R"("max_tokens":18446744073709551615)", "max_tokens"},
           {R"("stop":[1])", "stop"},
           {R"("stop":{})", "stop"},
           {R"("stream":1)", "stream"},
           {R"("stream_options":{})", "stream_options"},
           {R"("top_logprobs":2)", "top_logprobs"},
           {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
           {R"("tools":7)", "tools"},
           {R"("tools":[7])", "tools"},
           {R"("tools":[{}])", "tools[0].function"},
           {R"("tools":[{"type":"retrieval"}])", "tools[0].type"},
           {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
           {R"("tools":[{"function":{"name":"f","parameters":7}}])", "tools[0].function.parameters"},
           {R"("tools":[{"function":{"name":"f"}}],"grammar":"root ::= \"a\"")", "tools"},
           {R"("tools":[{"function":{"name":"f"}}])", "library"},  // this template supports no tools
           {R"("tool_choice":"required")", "tool_choice"},
           {R"("tool_choice":{"type":"function","function":{"name":"g"}})", "tool_choice.function.name"},
           {R"("parallel_tool_calls":1)", "parallel_tool_calls"},
           {R"("reasoning_effort":"much")", "reasoning_effort"},
           {R"("reasoning_format":"odd")", "reasoning_format"},
           {R"("chat_template_kwargs":7)", "chat_template_kwargs"},
           {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
           {R"("chat_template_kwargs":{"enable_thinking":"no"})", "chat_template_kwargs.enable_thinking"},
           {R"("logit_bias":{"x":1})", "logit_bias"},
           {R"("logit_bias":{"5":"a"})", "logit_bias"},
           {R"("logit_bias":{"999999999":1})", "logit_bias"},
           {R"("logit_bias":[[1]])", "logit_bias"},
           {R"("logit_bias":7)", "logit_bias"},
           {R"("typical_p":2)", "typical_p"},
           {R"("mirostat":3)", "mirostat"},
           {R"("samplers":7)", "samplers"},
           {R"("samplers":[7])", "samplers"},
           {R"("min_keep":-1)", "min_keep"},
           {R"("samplers":["top_k","top_k"])", "library"},
           {R"("dry_sequence_breakers":[7])", "dry_sequence_breakers"},
           {R"("dry_sequence_breakers":"x")", "dry_sequence_breakers"},
           {R"("modalities":["audio"])", "modalities"},
           {R"("response_format":{"type":"xml"})", "response_format.type"},
           {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"x"}}})", "response_format"},
           {R"("kv":7)", "kv"},
           {R"("kv":{"evct":"snapkv"})", "kv.evct"},
           {R"("kv":{"evict":7})", "kv.evict"},
           {R"("kv":{"evict":"full","budget":"20%"})", "kv.budget"},
           {R"("kv":{"evict":"snapkv"})", "kv.budget"},
           {R"("kv":{"evict":"headkv:head-file=/etc/passwd","budget":"20%"})", "kv.evict"},
           {R"("kv":{"evict":"lu-kv:profile=/etc/passwd","budget":"20%"})", "kv.evict"},
           {R"("kv":{"context":""})", "kv.context"},
           {R"("kv":{"evict":"snapkw","budget":"20%"})", "library"},
           {R"("kv":{"evict":"snapkv","budget":"200%"})", "library"}}) {
    EXPECT_EQ(refusal([&] { chat(body); }), param) << body;
  }
  for (const char* messages : {"[]", "7", "[7]", R"([{"role":"tool","content":"x"}])", R"([{"role":"user"}])",
                               R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"content":"x"}])"}) {
    EXPECT_FALSE(refusal([&] { chat("", messages); }).empty()) << messages;
  }
  for (const char* body :
       {"", "[]", "{", "nul", "{}", R"({"prompt":["a",7]})", R"({"prompt":[1.5]})", R"({"prompt":7})",
        R"({"prompt":"x","suffix":"y"})", R"({"prompt":"x","echo":true,"logprobs":1,"stream":true})",
        R"({"prompt":[]})", R"({"prompt":"x","best_of":1,"n":2})", R"({"prompt":"x","best_of":2,"stream":true})",
        R"({"prompt":[["a"]]})", "{\"prompt\":\"\xFF\"}"}) {
    refusal([&] { complete(body); });
  }
  std::string deep = R"({"prompt":"x","y":)";
  for (int i = 0; i < 100000; ++i) deep += '[';
  refusal([&] { complete(deep); });
  for (int i = 0; i < 100000; ++i) deep += ']';
  refusal([&] { complete(deep + "}"); });
}

TEST_F(ApiRequestTest, HarmlessValuesOfUnsupportedFields) {
  chat(R"("tools":[],"tool_choice":"auto","logit_bias":{},"modalities":["text"],"response_format":{"type":"text"})");
  complete(R"({"prompt":"x","echo":false,"best_of":1,"suffix":""})");
}

TEST_F(ApiRequestTest, PartsOfAContentAreJoined) {
  const ApiRequest request =
      chat("", R"([{"role":"user","content":[{"type":"text","text":"the "},{"type":"text","text":"hat"}]}])");
  EXPECT_EQ(request.batch.prompt, chat("").batch.prompt);
}

TEST_F(ApiRequestTest, RefusalsAreText) {
  const auto prompt = [&](const std::string& content) {
    return chat("", R"([{"role":"user","content":"a"},{"role":"assistant","content":)" + content +
                        R"(},{"role":"user","content":"b"}])");
  };
  const ApiRequest refused = prompt(R"([{"type":"refusal","refusal":"no"}])"), plain = prompt("\"no\"");
  EXPECT_EQ(refused.batch.context, plain.batch.context);
  EXPECT_EQ(refused.batch.prompt, plain.batch.prompt);
}

TEST_F(ApiRequestTest, MessagesThatAreNotAPersons) {
  const auto prompt = [&](const std::string& assistant) {
    const ApiRequest request = chat("", R"([{"role":"user","content":"a"},{"role":"assistant")" + assistant +
                                            R"(},{"role":"user","content":"b"}])");
    return text(request.batch.context) + text(request.batch.prompt);
  };
  EXPECT_EQ(prompt(""), prompt(R"(,"content":"")"));
  EXPECT_EQ(prompt(R"(,"tool_calls":[])"), prompt(R"(,"content":null)"));
  EXPECT_EQ(refusal([&] { prompt(R"(,"tool_calls":[{"id":"1"}])"); }), "messages[1].tool_calls[0].function");
  EXPECT_EQ(refusal([&] { prompt(R"(,"tool_calls":[{"function":{"name":"f","arguments":"{"}}])"); }),
            "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(refusal([&] { chat("", R"([{"role":"tool","content":"x"}])"); }), "messages[0].tool_call_id");
  EXPECT_EQ(refusal([&] { chat("", R"([{"role":"function","content":"x"}])"); }), "messages[0].role");
  EXPECT_EQ(refusal([&] { chat("", R"([{"role":"user","content":"x","tool_calls":[]}])"); }), "messages[0].tool_calls");
  EXPECT_EQ(refusal([&] { chat("", R"([{"role":"user"}])"); }), "messages[0].content");
}

TEST_F(ApiRequestTest, HistoriesOfAgents) {
  const ApiRequest request = chat("", R"([{"role":"user","content":"a"},
      {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":""}}]},
      {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{}}]},
      {"role":"user","content":"b"}])");
  ASSERT_EQ(request.warnings.size(), 1U);
  EXPECT_NE(request.warnings[0].find("'image_url'"), std::string::npos);
  EXPECT_EQ(chat(R"("logprobs":false,"top_logprobs":0)").batch.n_probabilities, -1);
}

TEST_F(ApiRequestTest, DocumentsAreContexts) {
  const std::string messages = R"([{"role":"system","content":"S"},{"role":"user","content":"first"},
      {"role":"assistant","content":"A"},{"role":"user","content":"second"}])";
  const ApiRequest request =
      chat(R"("kv":{"context":"the document","evict":"snapkv:window=2","budget":"50%"})", messages);
  const std::string context = text(request.batch.context);
  EXPECT_TRUE(context.ends_with("the document\n\n")) << context;
  EXPECT_NE(context.find("S<|im_end|>"), std::string::npos);
  const std::string rest = text(request.batch.prompt);
  EXPECT_TRUE(rest.starts_with("first")) << rest;
  EXPECT_NE(rest.find("second"), std::string::npos);
  EXPECT_TRUE(request.batch.session.eviction.evicts());
  // The same document with another question gives the same context.
  const ApiRequest other = chat(R"("kv":{"context":"the document","evict":"snapkv:window=2","budget":"50%"})",
                                R"([{"role":"system","content":"S"},{"role":"user","content":"other"}])");
  EXPECT_EQ(other.batch.context, request.batch.context);
  const ApiRequest aware = chat(R"("kv":{"context":"the document","question_aware":true,"keep":false})", messages);
  EXPECT_TRUE(aware.batch.context.empty());
  EXPECT_FALSE(aware.batch.keep);
  EXPECT_EQ(text(aware.batch.prompt), context + rest);
  EXPECT_TRUE(aware.batch.session.question_aware);
  EXPECT_FALSE(request.batch.session.question_aware);
  EXPECT_EQ(refusal([&] { chat(R"("kv":{"context":"d"})", R"([{"role":"system","content":"S"}])"); }), "library");
  const ApiRequest completion = complete(R"({"prompt":"ask","kv":{"context":"doc"}})");
  EXPECT_EQ(text(completion.batch.context), "doc");
  EXPECT_EQ(text(completion.batch.prompt), "ask");
}

// A chat that is cut as a whole ends with its question, and a text to be completed need not.
TEST_F(ApiRequestTest, WhatIsCutAsAWholeHasItsQuestionInSight) {
  const std::string messages = R"([{"role":"user","content":"ask"}])";
  const std::string cut = R"("evict":"snapkv:window=2","budget":"50%")";
  EXPECT_TRUE(chat("\"kv\":{" + cut + "}", messages).batch.session.question_aware);
  EXPECT_FALSE(chat("\"kv\":{" + cut + ",\"question_aware\":false}", messages).batch.session.question_aware);
  EXPECT_FALSE(complete(R"({"prompt":"ask","kv":{)" + cut + "}}").batch.session.question_aware);
  EXPECT_TRUE(complete(R"({"prompt":"ask","kv":{"question_aware":true,)" + cut + "}}").batch.session.question_aware);
}

TEST_F(ApiRequestTest, WithoutADocumentTheHistoryIsTheContext) {
  const std::string messages =
      R"([{"role":"system","content":"a long enough instruction, so that it is worth to be kept"},
          {"role":"user","content":"ask"}])";
  const ApiRequest full = chat("", messages);
  EXPECT_TRUE(text(full.batch.context).ends_with("user\n"));
  EXPECT_TRUE(text(full.batch.prompt).starts_with("ask"));
  // With eviction a short history does not become a context by itself.
  const ApiRequest cut = chat(R"("kv":{"evict":"snapkv:window=2","budget":"50%"})", messages);
  EXPECT_TRUE(cut.batch.context.empty());
  EXPECT_TRUE(cut.batch.session.eviction.evicts());
  defaults_.min_kv_tokens = 10;
  EXPECT_FALSE(chat(R"("kv":{"evict":"snapkv:window=2","budget":"50%"})", messages).batch.context.empty());
  EXPECT_TRUE(chat("").batch.context.empty());  // almost no text precedes the question
}

TEST_F(ApiRequestTest, DefaultsOfTheServer) {
  defaults_.session.eviction = EvictionOptions::parse("snapkv");
  defaults_.session.budget = Budget::parse("25%");
  defaults_.min_kv_tokens = 100;
  EXPECT_FALSE(complete(R"({"prompt":"short"})").batch.session.eviction.evicts());
  const std::string longer(200, 'x');
  EXPECT_TRUE(complete(R"({"prompt":")" + longer + "\"}").batch.session.eviction.evicts());
  EXPECT_EQ(complete(R"({"prompt":"short","kv":{"budget":"50%"}})").batch.session.budget->text(), "50%");
  EXPECT_EQ(complete(R"({"prompt":"short","kv":{"budget":64}})").batch.session.budget->text(), "64");
  EXPECT_FALSE(complete(R"({"prompt":")" + longer + R"(","kv":{"evict":"full"}})").batch.session.budget);
  EXPECT_EQ(complete(R"({"prompt":"short","kv":{"evict":"tova"}})").batch.session.budget->text(), "25%");
}

TEST_F(ApiRequestTest, TokensAsAPrompt) {
  EXPECT_EQ(complete(R"({"prompt":[5,6,7]})").batch.prompt, (std::vector<Token>{5, 6, 7}));
  EXPECT_EQ(complete(R"({"prompt":[[5,6,7]]})").batch.prompt, (std::vector<Token>{5, 6, 7}));
  EXPECT_EQ(complete(R"({"prompt":["the"]})").batch.prompt, complete(R"({"prompt":"the"})").batch.prompt);
}

TEST_F(ApiRequestTest, SchemasKeepTheirOrder) {
  const ApiRequest request = chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,
      "schema":{"type":"object","properties":{"z":{"type":"null"},"a":{"type":"null"}},"required":["z","a"]}}})");
  const std::string& grammar = request.batch.sampling.grammar;
  EXPECT_LT(grammar.find("\\\"z\\\""), grammar.find("\\\"a\\\"")) << grammar;
  std::string many = R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{})";
  for (int i = 0; i < 5000; ++i) many += ",\"k" + std::to_string(i) + "\":{}";
  EXPECT_EQ(refusal([&] { chat(many + "}}}}"); }), "response_format");
  many = R"("response_format":{"type":"json_schema","json_schema":{"schema":{"enum":[0)";
  for (int i = 0; i < 100'000; ++i) many += ",1";
  EXPECT_EQ(refusal([&] { chat(many + "]}}}"); }), "response_format");
  // Values outside the schema do not count.
  std::string beside = R"("response_format":{"type":"json_schema","json_schema":{"schema":{"enum":[0]}}},"user":[0)";
  for (int i = 0; i < 120'000; ++i) beside += ",1";
  for (int i = 0; i < 5'000; ++i) beside += R"(,{"a":1})";
  EXPECT_NE(chat(beside + "]").batch.sampling.grammar, "");
}

// Returns the text of an earlier call's arguments as the template gets it.
std::string second_call(const RequestBody& body) {
  return parse_chat(Fields(body.fields), false).messages.at(1).tool_calls.at(1).arguments;
}

const std::string kArguments = R"({"zone":"CET","city":{"y":1,"b":[{"z":"\u00e9","a":2}]}})";
const std::string kWritten = R"({"zone":"CET","city":{"y":1,"b":[{"z":"é","a":2}]}})";

std::string with_calls(const std::string& arguments) {
  return R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"","tool_calls":[
      {"id":"1","function":{"name":"f","arguments":"{}"}},{"id":"2","function":{"name":"f","arguments":)" +
         arguments + "}}]}]}";
}

TEST(CallArguments, KeepTheOrderOfTheirNames) {
  EXPECT_EQ(second_call(RequestBody(parse_body(with_calls(kArguments)))), kWritten);
  EXPECT_EQ(second_call(translate_ollama_chat(parse_body(with_calls(kArguments)))), kWritten);
  const RequestBody body =
      translate_messages(parse_body(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"text","text":"x"},{"type":"tool_use","id":"1","name":"f","input":{}},
      {"type":"tool_use","id":"2","name":"f","input":)" +
                                    kArguments + "}]}]}"));
  EXPECT_EQ(second_call(body), kWritten);
}

TEST(CallArguments, AreBoundedEachForItself) {
  const auto names = [](int n) {
    std::string object = "{\"0\":0";
    for (int i = 1; i < n; ++i) object += ",\"" + std::to_string(i) + "\":0";
    return object + "}";
  };
  std::string calls;
  for (int i = 0; i < 100; ++i)
    calls += (i > 0 ? "," : "") + ("{\"function\":{\"name\":\"f\",\"arguments\":" + names(100) + "}}");
  const std::string head = R"({"messages":[{"role":"assistant","tool_calls":[)";
  EXPECT_EQ(RequestBody(parse_body(head + calls + "]}]}")).fields["messages"][0]["tool_calls"].size(), 100U);
  try {
    RequestBody(parse_body(with_calls(names(5000))));
    FAIL() << "5,000 names were taken";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "messages");
  }
  // The limit also applies to arguments in a string, because templates look names up one after the other.
  for (const auto& [n, is_taken] : {std::pair(4000, true), std::pair(5000, false)}) {
    const RequestBody body(parse_body(with_calls(Json(names(n)).dump())));
    try {
      EXPECT_EQ(second_call(body), names(n));
      EXPECT_TRUE(is_taken) << n;
    } catch (const ApiError& error) {
      EXPECT_FALSE(is_taken) << n;
      EXPECT_EQ(error.param, "messages[1].tool_calls[1].function.arguments");
    }
  }
}

// A strict schema is refused with the unsupported keyword's name; otherwise the keyword is dropped with a warning.
TEST_F(ApiRequestTest, SchemasThatCannotBeHeld) {
  const auto format = [](const char* strict, const char* schema) {
    return std::string(R"("response_format":{"type":"json_schema","json_schema":{"name":"x",)") + strict +
           R"("schema":)" + schema + "}}";
  };
  const char* conditional = R"({"type":"object","properties":{"a":{"if":{"type":"null"}}}})";
  for (const char* strict : {"", R"("strict":true,)"}) {
    EXPECT_EQ(refusal([&] { chat(format(strict, conditional)); }), "response_format");
  }
  const ApiRequest request = chat(format(R"("strict":false,)", conditional));
  ASSERT_EQ(request.warnings.size(), 1U);
  EXPECT_NE(request.warnings[0].find("'if'"), std::string::npos) << request.warnings[0];
  EXPECT_FALSE(request.batch.sampling.grammar.empty());
  EXPECT_EQ(chat(format("", R"({"type":"string","format":"of-our-own"})")).warnings.size(), 1U);
  EXPECT_TRUE(
      chat(format("", R"({"type":"string","format":"email","maxLength":524288,"x-order":1})")).warnings.empty());
}

}  // namespace
}  // namespace winnow::server
