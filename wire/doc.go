// Package wire is the vocabulary that two processes must agree on: names, subjects, buckets, headers, error codes and
// the bodies of requests, replies and records. It holds no logic beyond parse, validate and print, and imports the
// standard library only, so that anything may import it.
package wire
