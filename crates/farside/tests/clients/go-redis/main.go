// go-redis and redsync against a gateway: what programs do with them.
//
// usage: go-redis URL [CA-FILE]
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	ctx   = context.Background()
	input = bufio.NewReader(os.Stdin)
)

func check(what string, holds bool) {
	if !holds {
		panic(what)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func connect(protocol int) *redis.Client {
	options := must(redis.ParseURL(os.Args[1]))
	options.Protocol = protocol
	options.ClientName = "tests"
	// After a restart every connection of the pool is broken, and over TLS it is only noticed when one is used.
	options.PoolSize, options.MaxRetries = 10, 20
	if len(os.Args) > 2 {
		pool := x509.NewCertPool()
		check("the CA file has certificates", pool.AppendCertsFromPEM(must(os.ReadFile(os.Args[2]))))
		options.TLSConfig = &tls.Config{RootCAs: pool, ServerName: "localhost"}
	}
	return redis.NewClient(options)
}

func values(client *redis.Client) {
	check("flush", must(client.FlushAll(ctx).Result()) == "OK")
	binary := make([]byte, 256)
	for index := range binary {
		binary[index] = byte(index)
	}
	check("set", must(client.Set(ctx, "\x00key\r\n", binary, 0).Result()) == "OK")
	check("get", bytes.Equal(must(client.Get(ctx, "\x00key\r\n").Bytes()), binary))
	check("none", errors.Is(client.Get(ctx, "none").Err(), redis.Nil))
	check("incr", must(client.IncrBy(ctx, "n", 40).Result()) == 40)
	check("float", must(client.IncrByFloat(ctx, "f", 0.5).Result()) == 0.5)
	check("mset", must(client.MSet(ctx, "a", 1, "b", 2).Result()) == "OK")
	check("mget", fmt.Sprint(must(client.MGet(ctx, "a", "none", "b").Result())) == "[1 <nil> 2]")
	large := bytes.Repeat([]byte("v"), 3_000_000)
	check("large", must(client.Set(ctx, "large", large, 0).Result()) == "OK")
	check("large", bytes.Equal(must(client.GetDel(ctx, "large").Bytes()), large))
	check("unknown", strings.Contains(client.XLen(ctx, "l").Err().Error(), "unknown command"))
}

func expiry(client *redis.Client) {
	check("set", must(client.Set(ctx, "e", "v", time.Minute).Result()) == "OK")
	left := must(client.PTTL(ctx, "e").Result())
	check("pttl", left > 0 && left <= time.Minute)
	check("persist", must(client.Persist(ctx, "e").Result()))
	check("ttl", must(client.TTL(ctx, "e").Result()) == -1)
	check("expire", must(client.ExpireNX(ctx, "e", time.Hour).Result()))
}

func keys(client *redis.Client) {
	must(client.FlushAll(ctx).Result())
	must(client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for number := range 1000 {
			pipeline.Set(ctx, fmt.Sprint("key:", number), number, 0)
		}
		return nil
	}))
	found := map[string]bool{}
	cursor := client.Scan(ctx, 0, "key:*", 100).Iterator()
	for cursor.Next(ctx) {
		found[cursor.Val()] = true
	}
	check("scan", cursor.Err() == nil && len(found) == 1000)
	check("dbsize", must(client.DBSize(ctx).Result()) == 1000)
}

func transactions(client *redis.Client) {
	replies := must(client.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
		pipeline.Set(ctx, "t", 1, 0)
		pipeline.Incr(ctx, "t")
		return nil
	}))
	check("multi", len(replies) == 2 && replies[1].(*redis.IntCmd).Val() == 2)
	lost := client.Watch(ctx, func(transaction *redis.Tx) error {
		must(client.Set(ctx, "t", "another", 0).Result())
		_, err := transaction.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
			pipeline.Set(ctx, "t", "ours", 0)
			return nil
		})
		return err
	}, "t")
	check("watch", errors.Is(lost, redis.TxFailedErr))
	check("kept", must(client.Get(ctx, "t").Result()) == "another")
}

func locks(client *redis.Client) {
	must(client.Set(ctx, "count", 0, 0).Result())
	locks := redsync.New(goredis.NewPool(client))
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 10 {
				mutex := locks.NewMutex("lock", redsync.WithExpiry(time.Minute), redsync.WithTries(1_000_000),
					redsync.WithRetryDelay(time.Millisecond))
				check("lock", mutex.Lock() == nil)
				count := must(client.Get(ctx, "count").Int())
				must(client.Set(ctx, "count", count+1, 0).Result())
				check("extend", must(mutex.Extend()))
				check("unlock", must(mutex.Unlock()))
			}
		})
	}
	workers.Wait()
	check("count", must(client.Get(ctx, "count").Int()) == 40)
}

func pool(client *redis.Client) {
	var workers sync.WaitGroup
	for range 50 {
		workers.Go(func() { must(client.Incr(ctx, "pool").Result()) })
	}
	workers.Wait()
	check("pool", must(client.Get(ctx, "pool").Int()) == 50)
}

// The server is killed and started again on the same segment; the client has to connect anew.
func restart(client *redis.Client) {
	must(client.Set(ctx, "kept", "v", 0).Result())
	fmt.Println("restart")
	must(input.ReadString('\n'))
	check("restart", must(client.Get(ctx, "kept").Result()) == "v")
}

func main() {
	for _, protocol := range []int{2, 3} {
		client := connect(protocol)
		for _, part := range []func(*redis.Client){values, expiry, keys, transactions, locks, pool, restart} {
			part(client)
		}
		check("name", must(client.ClientGetName(ctx).Result()) == "tests")
		check("close", client.Close() == nil)
	}
	fmt.Println("done")
}
