// Package natstest gives tests a real NATS to break.
//
// Start with [Start]: one server inside the test process, with JetStream on a
// temporary directory. [StartCluster] gives several with routes between them,
// [StartConfig] one that obeys a real configuration file, [Reserve] an address
// where a server will be later. [StartProxy] puts a breakable line in front of
// any of them, [Connect] makes a client, [Eventually] waits for a condition.
//
// Everything listens on 127.0.0.1 only, lives on ports nobody else was given,
// and is gone when the test ends. A failed precondition fails the test, so no
// helper returns an error. The helpers may be called from any goroutine, but a
// failure met outside the test's own goroutine ends only the goroutine it was
// met in (the test is marked as failed all the same).
//
// The gap: these servers are not processes. [Node.Stop] closes files properly
// and hands Raft leadership on before it goes, where a killed process would do
// neither, and nothing here loses writes that were acknowledged but not synced.
package natstest
