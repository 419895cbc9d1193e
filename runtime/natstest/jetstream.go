package natstest

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// settled is how long after its start all goroutines of a server run, on two busy cores.
const settled = 300 * time.Millisecond

// DisableJetStream takes JetStream away from the running server, as a failed disk
// would; connections and core NATS stay, and so does what is stored on disk. On a
// single server API requests then go unanswered until they time out, and publishing
// into a stream finds no responders. A member of a cluster keeps its place among
// the peers; if it is the meta leader, the call takes the two seconds the server
// waits for another.
func (n *Node) DisableJetStream() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv == nil || !n.srv.JetStreamEnabled() {
		n.t.Fatalf("natstest: disable JetStream: server %s does not have it", n.name)
	}
	// A worker of the server that begins to run only now would find no JetStream, keep that, and crash at the first request
	// behind EnableJetStream (nats-server 2.15.2).
	<-time.After(time.Until(n.since.Add(settled)))
	taken := n.srv.JetStreamConfig()
	disable := n.srv.DisableJetStream
	if n.srv.JetStreamIsClustered() {
		disable = n.srv.ShutdownJetStream // the other would take its seat in the cluster too
	}
	if err := disable(); err != nil {
		n.t.Fatalf("natstest: disable JetStream on server %s: %v", n.name, err)
	}
	n.taken = taken
}

// EnableJetStream gives back what [Node.DisableJetStream] took, with all data and
// without a break in the connections. For about 20 ms before that, API requests
// find no responders (users with restricted permissions are told of a violation).
//
// Afterwards the server handles each API request once more than before and drops
// the second answer, because it keeps its old subscription (nats-server 2.15.2,
// a reload of the configuration does the same). Don't count API requests then.
//
// It is for single servers. A member of a cluster gets JetStream back by
// [Node.Restart], as it would in earnest.
func (n *Node) EnableJetStream() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv == nil || n.taken == nil {
		n.t.Fatalf("natstest: enable JetStream: it was not taken from server %s", n.name)
	}
	if n.srv.ClusterAddr() != nil {
		n.t.Fatalf("natstest: enable JetStream: server %s is in a cluster, use Restart", n.name)
	}
	resume := pauseAPI(n.srv)
	defer resume()
	config := *n.taken
	config.StoreDir = n.dir // the server adds its own "jetstream" to it once more
	if err := n.srv.EnableJetStream(&config); err != nil {
		n.t.Fatalf("natstest: enable JetStream on server %s: %v", n.name, err)
	}
	n.taken = nil
}

// pauseAPI keeps API requests away from the server's JetStream until resume is
// called. The server (2.15.2) replaces the queue for them when JetStream is
// enabled, without regard to connections that read that field at the same time;
// the race detector would blame each test that had ever sent a request.
func pauseAPI(srv *server.Server) (resume func()) {
	const api, nowhere = "$JS.API.>", "_NATSTEST.PAUSED.>"
	var paused []*server.Account
	if list, err := srv.Accountz(nil); err == nil {
		for _, name := range list.Accounts {
			if acc, err := srv.LookupAccount(name); err == nil && acc.AddMapping(api, nowhere) == nil {
				paused = append(paused, acc)
			}
		}
	}
	// What got past before takes microseconds to be queued. Nothing tells when it
	// is; then to look at the queue's length orders us after it.
	time.Sleep(20 * time.Millisecond)
	srv.Ipqueuesz(&server.IpqueueszOptions{All: true})
	return func() {
		for _, acc := range paused {
			acc.RemoveMapping(api)
		}
	}
}
