package quorum_test

import (
	"crypto/rand"
	"fmt"

	"muster/functions/join/quorum"
	"muster/wire"
)

// Five sleds get a secret; three of them recover it.
func Example() {
	deal, err := quorum.Split(rand.Reader, quorum.Plan{
		RackID: rackID, Epoch: 1, Coordinator: board(1), Members: boards(5),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	arrived := map[wire.Baseboard]quorum.Share{}
	for _, sled := range []wire.Baseboard{board(2), board(4), board(5)} {
		share := deal.Shares[sled]
		if err := deal.Config.CheckShare(sled, share); err != nil {
			fmt.Println(err)
			continue
		}
		arrived[sled] = share
	}
	secret, err := quorum.Recover(deal.Config, arrived)
	fmt.Println(secret, secret.Equal(deal.Secret), err)

	delete(arrived, board(4))
	_, err = quorum.Recover(deal.Config, arrived)
	fmt.Println(err)
	// Output:
	// [hidden] true <nil>
	// recover rack secret: have 2 key shares, need 3 of 5
}

// The next epoch's secret opens all committed epochs before it.
func ExampleConfiguration_Secrets() {
	first, err := quorum.Split(rand.Reader, quorum.Plan{
		RackID: rackID, Epoch: 1, Coordinator: board(1), Members: boards(3),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	prior, err := first.Config.Secrets(first.Secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := quorum.Split(rand.Reader, quorum.Plan{
		RackID: rackID, Epoch: 2, Coordinator: board(2), Members: boards(4), Prior: prior,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := second.Config.Secrets(second.Secret)
	fmt.Println(len(all), all[1].Equal(first.Secret), all[2].Equal(second.Secret), err)
	// Output:
	// 2 true true <nil>
}
