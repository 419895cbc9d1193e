// Package runtime is how a function lives on the bus. A [Function] is a value that declares its ops, their types and the
// buckets it touches; [Bus.Serve] makes a NATS micro service of it, with admission, strict decoding, deadlines, error
// replies, schemas and metrics. Functions know neither NATS nor each other.
//
// Roles: a [Bus] is one process's connection, made before there is a server and following it; a [Bucket] is a KV bucket as
// this process sees it, made if absent, never changed if different; package store keeps documents in it; [Service] serves
// requests; [Bus.Follow] shows one key as it changes, for those at the edge.
//
// What always holds: every request with a reply subject gets one answer, before its deadline; a request that cannot be
// served now is told so at once and with the reason, because nothing here waits for a connection; what a stranger sent
// becomes neither a subject nor a label nor a line of the log before it was checked.
//
// The gap: a process that is killed answers nothing; the caller asks again, with the same request id if it must not
// happen twice.
package runtime
