// Evaluates admission policies as an API server does: by its own plugin, with its matching, its types and its budget of costs.
// Reads manifests of policies and bindings from a file, then a request a line from standard input, and answers each with a line:
// the messages of all validations that refuse it. What cannot be evaluated is an answer as well, in the plugin's words.
//
// usage: policy-evaluator POLICIES.yaml. Built by .ci/custom-resource-server.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// request is what the API server knows of one when it asks its plugins. Objects of today's versions; null where there is none.
type request struct {
	User      string
	Namespace core.Namespace
	Resource  string
	Object    json.RawMessage
	OldObject json.RawMessage
}

// attributes notes what the plugin writes into the audit log, where it tells of every validation and not of the first alone.
type attributes struct {
	admission.Attributes
	refused []string
}

func (a *attributes) AddAnnotation(key, value string) error {
	var failures []validating.ValidationFailureValue
	if err := json.Unmarshal([]byte(value), &failures); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for _, failure := range failures {
		a.refused = append(a.refused, failure.Message)
	}
	return nil
}

// namespaces is the namespace of the request at hand.
type namespaces struct{ one *core.Namespace }

func (n *namespaces) List(labels.Selector) ([]*core.Namespace, error) {
	return []*core.Namespace{n.one}, nil
}
func (n *namespaces) Get(string) (*core.Namespace, error) { return n.one, nil }

// strict refuses fields that a type does not have, as `kubectl apply` does.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

func policies(file string) ([]runtime.Object, error) {
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(text))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		switch one := object.(type) {
		case *admissionregistration.ValidatingAdmissionPolicyBinding:
			one.Spec.ValidationActions = append(one.Spec.ValidationActions, admissionregistration.Audit)
		case *admissionregistration.ValidatingAdmissionPolicy:
			one.Spec.MatchConstraints = withDefaults(one.Spec.MatchConstraints)
		}
		all = append(all, object)
	}
}

// withDefaults is what a server writes where nothing is written.
func withDefaults(rules *admissionregistration.MatchResources) *admissionregistration.MatchResources {
	all, equivalent := &meta.LabelSelector{}, admissionregistration.Equivalent
	defaults := admissionregistration.MatchResources{NamespaceSelector: all, ObjectSelector: all, MatchPolicy: &equivalent}
	written, _ := json.Marshal(rules)
	_ = json.Unmarshal(written, &defaults)
	return &defaults
}

func plugin(file string, known *namespaces) (*validating.Plugin, error) {
	objects, err := policies(file)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetRESTMapper(apimeta.NewDefaultRESTMapper(nil))
	plugin.SetDynamicClient(dynamic.NewSimpleDynamicClient(scheme.Scheme))
	plugin.SetDrainedNotification(stop)
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysDenyAuthorizer())
	plugin.SetMatcher(matching.NewMatcher(known, client))
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	// Its readiness waits for this one too, although the namespaces are ours.
	factory.Core().V1().Namespaces().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	return plugin, nil
}

func decoded(raw json.RawMessage) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil, nil
	}
	return strict.Decode(raw, nil, nil)
}

func refused(plugin *validating.Plugin, asked request) ([]string, error) {
	object, kind, err := decoded(asked.Object)
	if err != nil {
		return nil, err
	}
	old, oldKind, err := decoded(asked.OldObject)
	if err != nil {
		return nil, err
	}
	operation := admission.Update
	switch {
	case object == nil:
		operation, kind = admission.Delete, oldKind
	case old == nil:
		operation = admission.Create
	}
	resource := kind.GroupVersion().WithResource(asked.Resource)
	who := &user.DefaultInfo{Name: asked.User}
	of := admission.NewAttributesRecord(object, old, *kind, asked.Namespace.Name, "", resource, "", operation, nil, false, who)
	noting := &attributes{Attributes: of, refused: []string{}}
	err = plugin.Validate(context.Background(), noting, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err != nil && len(noting.refused) == 0 {
		noting.refused = append(noting.refused, err.Error())
	}
	return noting.refused, nil
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: policy-evaluator POLICIES.yaml < REQUESTS")
	}
	known := &namespaces{}
	plugin, err := plugin(os.Args[1], known)
	if err != nil {
		return err
	}
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked request
		if err := requests.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		known.one = &asked.Namespace
		messages, err := refused(plugin, asked)
		if err != nil {
			messages = []string{"no object of Kubernetes: " + err.Error()}
		}
		if err := answers.Encode(messages); err != nil {
			return err
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
