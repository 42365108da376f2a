// Package modeltest is a model server for tests. It speaks the three wire formats of
// real servers (OpenAI's Chat Completions and Responses, Anthropic's Messages),
// streamed or not, and answers from a script, so that no model is needed to see how a
// client, a loop or the whole program behaves.
//
// One script drives any format. It is YAML, decoded strictly:
//
//	answers:
//	  - think: The test comes first.
//	    say: I run the test.
//	    calls: [{tool: exec, args: {argv: [python3, -m, unittest]}}]
//	  - fail: {kind: rate, retry_after: "1"}
//	  - expect: {has: ["FAILED"]}
//	    say: Done.
//
// Answers are given in their order, one a request; see Script and Answer for all there
// is. A request whose tool_choice is "none" (Anthropic: {"type": "none"}) declares
// tools and may call none: it asks for a summary, is answered with Script.Summary and
// takes nothing from the list. One that declares no tool at all is answered with
// Script.Plain where that is set, and otherwise like any other.
//
// The server is as strict as the real ones and where they differ as the strictest: a
// result without its call, a call without its result, empty text, an unknown field, a
// thought whose signature is not its own, arguments in the conversation that are no
// JSON object (chat and messages) are refused with status 400 in the format's own
// words. Each refusal, and each expectation of the script that was not met, is kept in
// Server.Faults.
//
// Script.Like makes the face of Chat Completions as odd as one of the servers that speak
// it in their own way: what they refuse is refused (a call without a thought, without a
// signature, with a long id, a parameter of another name), and what they send comes as
// they send it (calls in one piece, all of the same number, thoughts under other names
// and signed in pieces, usage unasked).
//
// # Tokens
//
// They are counted alike for all formats. What a model reads of a request (system text,
// the tools' names, descriptions and schemas, the conversation, without ids and JSON
// around them) is laid out in one canonical text with one line a piece; the input is
// its bytes divided by four, rounded up, and 1,000 for each image. The output is the bytes of
// thoughts, text, tool names and arguments by four, rounded up.
//
// A cache is simulated by the longest common beginning with earlier requests. OpenAI's
// formats report it within the input tokens, in whole 128s and from 1,024 on. For
// Anthropic's only what stands before a cache_control mark is kept and found; it is
// reported beside the input: read from the cache, or written into it.
package modeltest
