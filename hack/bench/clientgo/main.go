// The same work as reconcile.py, with client-go: list and index the objects of a resource, and read each
// once from the cache. Prints the same JSON line.
//
//	go run . --kubeconfig FILE --resource v1/secrets --namespace NS --expect N [--workers 10]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

// counter counts requests on their way out.
type counter struct {
	next  http.RoundTripper
	count *int64
}

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	atomic.AddInt64(c.count, 1)
	return c.next.RoundTrip(request)
}

func residentMiB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API server is")
	resource := flag.String("resource", "v1/secrets", "only v1/secrets, whose type is compiled in")
	namespace := flag.String("namespace", "", "whose objects to read")
	expect := flag.Int("expect", 0, "how many there are")
	workers := flag.Int("workers", 10, "goroutines that reconcile")
	flag.Parse()
	if *resource != "v1/secrets" {
		fail(fmt.Errorf("--resource: only v1/secrets, not %s", *resource))
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	// JSON, as for custom resources, for which there is nothing else.
	config.ContentType = "application/json"
	var requests int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &requests} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}

	memory := residentMiB()
	start := time.Now()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace))
	informer := factory.Core().V1().Secrets().Informer()
	queue := workqueue.NewRateLimitingQueue(workqueue.DefaultControllerRateLimiter())
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object interface{}) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}})
	stop := make(chan struct{})
	factory.Start(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		fail(fmt.Errorf("the cache did not sync"))
	}
	synced := time.Now()

	var done int64
	finished := make(chan struct{})
	var once sync.Once
	for worker := 0; worker < *workers; worker++ {
		go func() {
			for {
				key, over := queue.Get()
				if over {
					return
				}
				object, exists, err := informer.GetIndexer().GetByKey(key.(string))
				if err == nil && exists && object.(*corev1.Secret).Name != "" {
					if atomic.AddInt64(&done, 1) >= int64(*expect) {
						once.Do(func() { close(finished) })
					}
				}
				queue.Forget(key)
				queue.Done(key)
			}
		}()
	}
	select {
	case <-finished:
	case <-time.After(5 * time.Minute):
		fail(fmt.Errorf("only %d of %d objects within 5 minutes", atomic.LoadInt64(&done), *expect))
	}
	end := time.Now()
	line, _ := json.Marshal(map[string]interface{}{
		"objects":           len(informer.GetIndexer().ListKeys()),
		"sync_seconds":      synced.Sub(start).Seconds(),
		"reconcile_seconds": end.Sub(synced).Seconds(),
		"total_seconds":     end.Sub(start).Seconds(),
		"rss_mib_start":     memory,
		"rss_mib_end":       residentMiB(),
		"requests":          atomic.LoadInt64(&requests),
	})
	fmt.Println(string(line))
	queue.ShutDown()
	close(stop)
}
